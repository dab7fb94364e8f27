"""The hook of `docs/how-to/context-share-in-a-script.md`, registered as that page says, on the real CLI."""

import json
import pathlib
import sys

from claude_agent_sdk import ClaudeSDKClient

from tests.helpers.doc_pages import ROOT, read

from .driving import prose

PAGE = ROOT / "docs/how-to/context-share-in-a-script.md"
SCRIPT, SETTINGS = (next(block.body for block in read(PAGE) if block.kind == kind) for kind in ("sh", "json"))
WORDS = "Write down what you must not lose."


async def test_an_agent_is_told_once_it_is_nearly_full(mala_api, mala_options, mala_home, mala_project):
    script = mala_home / "nearly-full.sh"
    script.write_text(SCRIPT)
    settings = json.loads(SETTINGS.replace("~/nearly-full.sh", str(script)))
    path = pathlib.Path(mala_project) / ".claude" / "settings.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(settings))
    api = mala_api(["Small.", "Large.", "Told."], window=200_000, chars_per_token=2.0)
    options = mala_options(api, setting_sources=["project"])
    options.env["PATH"] = f"{pathlib.Path(sys.executable).parent}:/usr/bin:/bin"
    async with ClaudeSDKClient(options) as client:
        for prompt in ("one", prose(240_000), "three"):
            await client.query(prompt)
            async for _ in client.receive_response():
                pass
    assert [(request.tokens > 140_000, request.contains(WORDS)) for request in api.requests] == [
        (False, False),
        (True, False),
        (True, True),
    ]
