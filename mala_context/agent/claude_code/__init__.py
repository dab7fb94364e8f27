"""Interactive Claude Code: processes that live for milliseconds. They import as little as they can."""
