"""The command line: the only place that prints and exits.

Exit status: 0 fine, 1 a check failed, 2 wrong usage, 3 an input was not found or cannot be used.
"""

from __future__ import annotations


def main() -> None:
    """Run `mala-context`."""
    try:
        import sys

        if sys.argv[1:2] == ["statusline"]:  # Claude Code waits for it after each response: click would cost 20 ms
            from mala_context.cli.statusline import fast

            status = fast(sys.argv[2:])
            if status is not None:
                raise SystemExit(status)
        if sys.argv[1:2] == ["replay"]:  # likewise for programs that read its JSON
            from mala_context.cli.session_lines import fast

            fast(sys.argv[2:])
        from mala_context.cli.app import run

        run()
    except KeyboardInterrupt:  # Ctrl-C while the command line is being loaded, or while it ends
        raise SystemExit(130) from None
