"""The command line: the only place that prints and exits."""

from __future__ import annotations


def main() -> None:
    """Run `mala-context`."""
    try:
        import sys

        status = None
        if sys.argv[1:2] == ["statusline"]:  # Claude Code waits for it after each response: click would cost 20 ms
            from mala_context.cli.statusline import fast

            status = fast(sys.argv[2:])
        if sys.argv[1:2] == ["replay"]:
            import gc

            gc.disable()  # modules and records form no cycles; looking for them took 7 % of a short run
            from mala_context.cli.session_lines import fast

            status = fast(sys.argv[2:])
            gc.freeze()  # what is loaded is not looked at again when the process ends
            gc.enable()
        if status is not None:
            raise SystemExit(status)
        if sys.argv[1:2] == ["hook"]:  # Claude Code waits for it before each compaction
            from mala_context.cli import hook

            hook.fast(sys.argv[2:])
        from mala_context.cli.app import run

        run()
    except KeyboardInterrupt:  # Ctrl-C while the command line is being loaded, or while it ends
        raise SystemExit(130) from None
