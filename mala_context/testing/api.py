"""`ScriptedMessagesAPI`: a Messages API on the loopback that says what a test wrote down."""

from __future__ import annotations

import os
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

from mala_context.testing.classify import Kind, agent_id, recognise
from mala_context.testing.messages import Message, build_message, encode_event, error_body, stream_events
from mala_context.testing.replies import Failure, Reply, api_error, too_long
from mala_context.testing.requests import Request, State
from mala_context.testing.scripting import Casting, Script
from mala_context.testing.server import Exchange, LoopbackServer
from mala_context.testing.token_counts import TokenCounter

if TYPE_CHECKING:
    from types import TracebackType

    from claude_agent_sdk import ClaudeAgentOptions

MODEL = "claude-sonnet-4-5"
ANOTHER_ACCOUNT = (
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BETAS",
    "ANTHROPIC_CUSTOM_HEADERS",
    "ANTHROPIC_MODEL",
    "ANTHROPIC_SMALL_FAST_MODEL",
    "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE",
    "CLAUDE_CODE_AUTO_COMPACT_WINDOW",
    "CLAUDE_CODE_MAX_OUTPUT_TOKENS",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_FOUNDRY",
    "CLAUDE_CODE_USE_VERTEX",
    "DISABLE_AUTO_COMPACT",
    "DISABLE_COMPACT",
    "CLAUDECODE",
)
"""Variables of the user's own account or session; a test must not depend on them."""


class ScriptError(AssertionError):
    """The agent asked for more than its script holds, or a script failed; the message lists each request."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(["the scripted API had problems:", *problems]))


class ScriptedMessagesAPI:
    """A Messages API that a test scripts, for the `with` statement.

    It serves from a thread, so it goes with asyncio, trio and code without either. Leaving the block raises
    `ScriptError` if `problems` has entries, unless `strict` is false or another error is on its way.

    Args:
        script: what the main thread is answered, in order: replies, strings, failures, or a callable.
        subagents: one script that each subagent plays from its start, or scripts by words of the subagent's prompt;
            None answers each with a plain text.
        compactions: answers to requests for a summary; when they are used up, and without any, summaries are automatic.
        window: refuse every request of more tokens than this in the API's own words; None accepts any size.
        chars_per_token: the rate of the count; small values make big contexts of little text.
        usage_in: where streams carry the sizes: in message_start as the API does, or `delta` for the end alone.
        strict: whether leaving the block raises for problems.
        clock: the time by which the cache lapses, in seconds since the epoch; a `ScriptedClock` is moved by the test.

    """

    def __init__(
        self,
        script: Script = (),
        *,
        subagents: Script | Mapping[str, Script] | None = None,
        compactions: Script | None = None,
        window: int | None = None,
        chars_per_token: float = 4.0,
        usage_in: Literal["start", "delta"] = "start",
        strict: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.window = window
        self.usage_in = usage_in
        self.strict = strict
        self.requests: list[Request] = []
        self.problems: list[str] = []
        self._casting = Casting(script, subagents, compactions)
        self._counter = TokenCounter(chars_per_token, clock)
        self._changed = threading.Condition()
        self._tag = secrets.token_hex(5)
        self._server: LoopbackServer | None = None
        self._directory: tempfile.TemporaryDirectory[str] | None = None

    # The with block

    def start(self) -> Self:
        """Listen on a free port; for those who cannot use `with`. Call `close` afterwards.

        Raises `RuntimeError` the second time.
        """
        if self._server is not None:
            raise RuntimeError("this API was started already; make a new one")
        self._server = LoopbackServer(self)
        self._server.start()
        return self

    def close(self) -> None:
        """End every connection and remove the temporary directory; problems are not raised. May be called twice."""
        if self._server is not None:
            self._server.close()
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
        if not self.problems or not self.strict:
            return
        if error is None:
            raise ScriptError(self.problems)
        error.add_note(str(ScriptError(self.problems)))

    # For the client

    @property
    def url(self) -> str:
        """The base URL, for `ANTHROPIC_BASE_URL`. Raises RuntimeError before the start."""
        if self._server is None:
            raise RuntimeError("the API is not started: use it in a with statement")
        return self._server.url

    def env(self, home: str | os.PathLike[str] | None = None) -> dict[str, str]:
        """Return the CLI's environment; `home` defaults to a temporary directory that goes with the API."""
        if home is None:
            home = self._place("home")
        return claude_env(self.url, home)

    def options(
        self,
        *,
        cwd: str | os.PathLike[str] | None = None,
        home: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> ClaudeAgentOptions:
        """Return options with which the SDK's own CLI runs against this API and nothing else.

        `env` is added to the environment, `fields` are any of `ClaudeAgentOptions`; `cwd` and `home`, in which the CLI
        writes, default to empty temporary directories. Without other fields every tool may run and no settings of the
        user are read.
        """
        from claude_agent_sdk import ClaudeAgentOptions

        defaults: dict[str, Any] = {"model": MODEL, "permission_mode": "bypassPermissions", "setting_sources": []}
        return ClaudeAgentOptions(
            cwd=self._place("project") if cwd is None else os.fspath(cwd),
            env={**self.env(home), **(env or {})},
            **{**defaults, **fields},
        )

    def _place(self, name: str) -> str:
        if self._directory is None:
            self._directory = tempfile.TemporaryDirectory(prefix="scripted-api-", ignore_cleanup_errors=True)
        place = os.path.join(self._directory.name, name)
        os.makedirs(place, mode=0o700, exist_ok=True)
        return place

    # For the test

    def of_kind(self, *kinds: Kind) -> list[Request]:
        """Return the requests of these kinds, in order of arrival."""
        with self._changed:
            return [request for request in self.requests if request.kind in kinds]

    @property
    def main_requests(self) -> list[Request]:
        """The requests of the main thread that were for its script, refused ones too."""
        return self.of_kind("main")

    @property
    def last(self) -> Request:
        """The newest request of the main thread; raises LookupError before the first."""
        requests = self.main_requests
        if not requests:
            raise LookupError("the main thread has sent no request yet")
        return requests[-1]

    @property
    def texts(self) -> list[str]:
        """All that the model was shown on the main thread, a string a request."""
        return [request.text for request in self.main_requests]

    def by_message(self, message_id: str) -> Request:
        """Return the request that a message answered; raises LookupError for an id of another server."""
        with self._changed:
            for request in self.requests:
                if request.message_id == message_id:
                    return request
        raise LookupError(f"no request was answered with message {message_id!r}")

    def break_cache(self) -> None:
        """Forget every cache, as a server does that runs out of room; the next request writes all of its prompt."""
        with self._changed:
            self._counter.break_cache()

    def wait(
        self, number: int = 1, *, kind: Kind = "main", state: State = "received", timeout: float = 10.0
    ) -> Request:
        """Block until the `number`-th request of a kind is in a state or past it, and return it.

        Raises TimeoutError after `timeout` seconds. In async code: `await asyncio.to_thread(api.wait, …)`.
        """
        reached = _AT_LEAST[state]

        def found() -> Request | None:
            requests = [request for request in self.requests if request.kind == kind]
            there = len(requests) >= number and requests[number - 1].state in reached
            return requests[number - 1] if there else None

        with self._changed:
            request = self._changed.wait_for(found, timeout)
        if request is None:
            raise TimeoutError(f"no {kind} request {number} was {state} within {timeout} s")
        return request

    # What the server calls

    def handle(self, exchange: Exchange, path: str, headers: Mapping[str, str], body: Mapping[str, Any]) -> None:
        """Answer one POST of these `headers` and this `body` to `path` through `exchange`; the server calls it."""
        if path not in {"/v1/messages", "/v1/messages/count_tokens"}:
            exchange.send_json(404, error_body(api_error(404, f"nothing at {path}"), f"req_{self._tag}"), {})
            return
        request = self._receive(path, headers, body)
        try:
            self._answer(exchange, request)
        except OSError:
            self._move(request, "abandoned")
            raise

    def _receive(self, path: str, headers: Mapping[str, str], body: Mapping[str, Any]) -> Request:
        kind = recognise(path, body, headers)
        tokens = self._counter.count(body)
        with self._changed:
            request = Request(
                number=len(self.requests) + 1,
                kind=kind,
                path=path,
                headers=headers,
                body=body,
                time=time.time(),
                id=f"req_{self._tag}{len(self.requests) + 1:06d}",
                received_tokens=tokens,
                agent_id=agent_id(headers),
                tokens=tokens,
            )
            self.requests.append(request)
            self._changed.notify_all()
        return request

    def _move(self, request: Request, state: State) -> None:
        """Set a state and wake who waits; `answered` is set before the last bytes, so that no client is ahead of it."""
        with self._changed:
            request.state = state
            self._changed.notify_all()

    def _answer(self, exchange: Exchange, request: Request) -> None:
        if request.kind == "count_tokens":
            request.status = 200
            self._move(request, "answered")
            exchange.send_json(200, {"input_tokens": request.tokens}, {})
            return
        answer = request.answer = self._decide(request)
        headers = {"request-id": request.id, **answer.headers}
        exchange.wait(None, answer.delay)
        if isinstance(answer, Reply) and answer.breaks_with is not None and not request.body.get("stream"):
            answer = answer.breaks_with
        if isinstance(answer, Failure):
            self._hold(exchange, request, answer)
            request.status = answer.status
            self._move(request, "answered")
            exchange.send_json(answer.status, error_body(answer, request.id), headers)
            return
        message = self._message(request, answer)
        if request.body.get("stream"):
            exchange.start_stream(headers)
            self._stream(exchange, request, answer, message)
        else:
            self._hold(exchange, request, answer)
            self._move(request, "answered")
            exchange.send_json(200, message.as_json(), headers)

    def _decide(self, request: Request) -> Reply | Failure:
        if self.window is not None and request.tokens > self.window:
            return too_long(request.tokens, self.window)
        try:
            answer, problem = self._casting.answer(request)
        except Exception as error:  # noqa: BLE001 -- a script is foreign code; what it raised is told where the test looks
            answer = api_error(500, f"the script raised {error!r}", retry=False)
            problem = f"request {request.number}: the script raised {error!r}"
        if problem is not None:
            self.problems.append(problem)
        return answer

    def _message(self, request: Request, reply: Reply) -> Message:
        with self._changed:
            size = self._counter.measure(request.body, (request.session_id, request.agent_id, request.kind))
            message = build_message(
                reply,
                size,
                self._counter,
                number=request.number,
                tag=self._tag,
                model=request.model,
                usage_in=self.usage_in,
            )
            request.status = 200
            request.message_id = message.id
            request.tokens = message.tokens
            request.usage = message.usage
            request.again, request.again_cause = size.again, size.cause
        return message

    def _stream(self, exchange: Exchange, request: Request, reply: Reply, message: Message) -> None:
        waiting = b""
        for event, holds in stream_events(message):
            waiting += encode_event(event)
            if holds and reply.hold is not None:
                exchange.send_chunk(waiting)
                waiting = b""
                self._hold(exchange, request, reply)
            if holds and reply.breaks_with is not None:
                waiting += encode_event(error_body(reply.breaks_with, request.id))
                break
        self._move(request, "answered")
        exchange.send_chunk(waiting)
        exchange.end_stream()

    def _hold(self, exchange: Exchange, request: Request, answer: Reply | Failure) -> None:
        if answer.hold is not None:
            self._move(request, "holding")
            exchange.wait(answer.hold)


_AT_LEAST: Mapping[State, frozenset[State]] = {
    "received": frozenset({"received", "holding", "answered", "abandoned"}),
    "holding": frozenset({"holding", "answered", "abandoned"}),
    "answered": frozenset({"answered"}),
    "abandoned": frozenset({"abandoned"}),
}


def claude_env(base_url: str, home: str | os.PathLike[str]) -> dict[str, str]:
    """Return the variables for `ClaudeAgentOptions(env=…)`.

    All that the CLI keeps, scratch files too, is below `home`; it makes the directories itself. Without background
    traffic it asks for no titles either. Where this process has no `PATH`, the CLI gets the system's default.
    """
    home = os.fspath(home)
    return {
        **({} if os.environ.get("PATH") else {"PATH": os.defpath}),  # without one the agent's commands are not found
        **dict.fromkeys(ANOTHER_ACCOUNT, ""),
        "ANTHROPIC_API_KEY": "scripted",
        "ANTHROPIC_BASE_URL": base_url,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_TMPDIR": os.path.join(home, "tmp"),
        "CLAUDE_CONFIG_DIR": os.path.join(home, ".claude"),
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "HOME": home,
        "IS_SANDBOX": "1",
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
    }
