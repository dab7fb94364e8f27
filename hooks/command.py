"""The script of the plugin's slash commands: `command.py status|undo|lost SESSION` prints lines and exits with 0.

Like `hook.py` it uses the package in the checkout beside it, and even an old Python can read it.
"""

import os
import sys

if sys.version_info < (3, 11):  # noqa: UP036  # whatever `python3` is on somebody's PATH
    sys.stdout.write("mala-context: python3 is %d.%d, 3.11 or later is needed\n" % sys.version_info[:2])  # noqa: UP031
else:
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
    from mala_context.cli.slash import answer

    sys.stdout.buffer.write(answer(sys.argv[1:], os.environ).encode("utf-8", "backslashreplace"))
