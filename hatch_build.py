"""Compiles the part of the replay that is in C, where there is a compiler; without one, Python does the same, slower.

`MALA_CONTEXT_COMPILE=0` leaves it out, for a wheel that runs everywhere.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import tempfile
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NAME = "mala_context.analysis.replay._skim"
SOURCES = ("mala_context/analysis/replay/_skim.c", "mala_context/analysis/replay/_row_avx2.c")
TAG = "cp311-abi3"
"""The oldest Python that the compiled part is for; it runs on all later ones."""


class CompiledPart(BuildHookInterface):
    """Adds the compiled part to a wheel, or puts it beside its source for an editable install."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; whatever goes wrong is said, and ends in a wheel without it."""
        has_abi3 = sys.implementation.name == "cpython" and not sysconfig.get_config_var("Py_GIL_DISABLED")
        if os.environ.get("MALA_CONTEXT_COMPILE") == "0" or os.name != "posix" or not has_abi3:
            return
        self._work = tempfile.TemporaryDirectory()
        into = self.root if version == "editable" else self._work.name
        try:
            built = compiled(self.root, into)
        except Exception as error:  # noqa: BLE001  (setuptools raises several kinds, SystemExit not among them)
            self.app.display_warning(f"{SOURCES[0]} was not compiled, replay will be slower: {error}")
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"{TAG}-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
        if version != "editable":
            build_data["force_include"][built] = os.path.relpath(built, into)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was compiled, which is in the wheel now."""
        if hasattr(self, "_work"):
            self._work.cleanup()


def compiled(root: str, into: str) -> str:
    """Compile below a folder and return the file's path; raises what setuptools raises."""
    from setuptools import Distribution, Extension

    flags = ["-O3", "-std=c11", "-fvisibility=hidden"]
    sources = [os.path.join(root, source) for source in SOURCES]
    extension = Extension(NAME, sources, py_limited_api=True, extra_compile_args=flags)
    command = Distribution({"name": "mala-context", "ext_modules": [extension]}).get_command_obj("build_ext")
    command.build_lib = into
    command.force = True  # one that is there may be of another header, or of other flags
    with tempfile.TemporaryDirectory() as temporary:
        command.build_temp = temporary
        command.ensure_finalized()
        command.run()
    (path,) = command.get_outputs()
    return str(path)
