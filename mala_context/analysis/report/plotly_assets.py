"""The chart library that goes into a page: plotly.js, as the Python package `plotly` ships it.

Of what comes inside Python packages it is the one whose charts are SVG with text in them (legible when printed, and to
a screen reader), whose package needs little else, and which is kept up by a company and a large community. Packed it
makes a page of about 1.9 MB; bokeh's script is a quarter of that, but draws on a canvas and brings numpy and Pillow.
"""

from __future__ import annotations

import base64
import gzip
import hashlib

from mala_context.errors import MalaContextError


def source() -> str:
    """Return the library's script. Raises `MalaContextError` where the extra `report` is not installed."""
    try:
        from importlib.resources import files

        script = files("plotly").joinpath("package_data", "plotly.min.js").read_text(encoding="utf-8")
    except (ImportError, OSError):
        words = "a page needs the package plotly: pip install 'mala-context[report]', or name an .svg"
        raise MalaContextError(words) from None
    return script


def packed(script: str) -> str:
    """Return a script compressed and in ASCII; the same script always gives the same text."""
    return base64.b64encode(gzip.compress(script.encode(), 9, mtime=0)).decode("ascii")


def fingerprint(script: str) -> str:
    """Return what a Content-Security-Policy calls a script by, so that this one may run and no other."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
