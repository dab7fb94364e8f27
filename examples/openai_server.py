"""A chat with an OpenAI-compatible server that compacts its own conversation before the window is full.

Each answer, whole or in chunks, goes through `read_openai` to the tracker. `openai_status` says how full the
conversation is, and when to compact (from 90 % on). It needs the package `openai`. With any compatible server:

    OPENAI_BASE_URL=http://localhost:11434/v1 OPENAI_API_KEY=none python examples/openai_server.py MODEL [WINDOW]
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import openai

from mala_context import ContextTracker, openai_status, read_openai

QUESTIONS = ("What is a context window?", "What happens when it is full?", "And after that?")
SUMMARISE = "Summarise our conversation so that it can go on from your words alone."


class Chat:
    """A conversation that says how full it is."""

    def __init__(self, client: openai.OpenAI, model: str, window: int | None) -> None:
        self.client, self.model = client, model
        self.messages: list[Any] = []
        self.tracker = ContextTracker(estimator="total_tokens", window=window)

    def ask(self, question: str, *, stream: bool) -> Iterator[str]:
        """Send a question and yield the answer's words as they come."""
        self.messages.append({"role": "user", "content": question})
        usage: dict[str, Any] = {"stream_options": {"include_usage": True}} if stream else {}  # off by default
        create: Any = self.client.chat.completions.create
        answer = create(model=self.model, messages=self.messages, stream=stream, **usage)
        said = ""
        for part in answer if stream else [answer]:
            for event in read_openai(part):
                self.tracker.apply(event)
            for choice in part.choices:  # the last chunk has the counts and no choices
                words = (choice.delta if stream else choice.message).content or ""
                said += words
                yield words
        self.messages.append({"role": "assistant", "content": said})


if __name__ == "__main__":
    if len(sys.argv) < 2 or "OPENAI_API_KEY" not in os.environ:
        raise SystemExit("usage: OPENAI_API_KEY=… python examples/openai_server.py MODEL [WINDOW]")
    with openai.OpenAI() as client:
        chat = Chat(client, sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None)
        for number, question in enumerate(QUESTIONS):
            print(question, "".join(chat.ask(question, stream=number % 2 == 1)), sep="\n")
            now = openai_status(chat.tracker)
            print(f"    {now.tokens:,} of {now.max_tokens:,} tokens{' (estimated)' if now.is_estimate else ''}")
            if now.wants_compaction:
                chat.messages = [{"role": "user", "content": "".join(chat.ask(SUMMARISE, stream=False))}]
                print("    compacted")
