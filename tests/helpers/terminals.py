"""A terminal that keeps what is drawn on it, for tests of what commands draw."""

import io


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self):
        return True
