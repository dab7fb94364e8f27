"""The environment in which the CLI talks to a scripted API and to nothing else."""

from __future__ import annotations

import os

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
