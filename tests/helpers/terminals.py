"""A terminal that keeps what is drawn on it, for tests of what commands draw."""

import io
import re


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self):
        return True


def without_codes(text):
    """What stands on a terminal that was written to: no colours, no movements."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
