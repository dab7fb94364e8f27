"""The Claude Code plugin's one script: a hook's JSON on standard input, `{}` (or a warning) on standard output, exit 0.

Nothing is installed: the package is the one in the checkout beside this file. Even an old Python can read this file,
so that it can say what is wrong. Whatever happens, the session goes on.
"""

import os
import sys

answer, said = b"{}", ""
try:
    if sys.version_info < (3, 11):  # noqa: UP036  # whatever `python3` is on somebody's PATH
        said = "python3 is %d.%d, 3.11 or later is needed: nothing archived" % sys.version_info[:2]  # noqa: UP031
    else:
        sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
        from mala_context.agent.claude_code.command_hooks import answer_in_time

        answer, said = answer_in_time(sys.argv[1:], os.environ)
except BaseException as error:  # noqa: BLE001  # a hook never disturbs the session, whatever is wrong with it
    said = "%s: %s" % (type(error).__name__, error)  # noqa: UP031  # old Pythons read this too
for stream, words in ((1, answer), (2, ("mala-context: " + " ".join(said.split())).encode("utf-8", "replace"))):
    try:
        if stream == 1 or said:
            os.write(stream, words + b"\n")
    except OSError:
        pass  # the reader is gone
os._exit(0)
