"""Compiles the parts that are in C, where there is a compiler; without one, Python does the same, slower.

`MALA_CONTEXT_COMPILE=0` leaves them out, for a wheel that runs everywhere.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import tempfile
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = {
    "mala_context.analysis.replay._skim": (
        "mala_context/analysis/replay/_skim.c",
        "mala_context/analysis/replay/_row_avx2.c",
    ),
    "mala_context.tracking._byte_kinds": ("mala_context/tracking/_byte_kinds.c",),
}
"""The compiled modules, and what each is made of."""
TAG = "cp311-abi3"
"""The oldest Python that the compiled parts are for; they run on all later ones."""


class CompiledParts(BuildHookInterface):
    """Adds the compiled parts to a wheel, or puts each beside its source for an editable install."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; a warning tells of any error, and the wheel is built without them then."""
        has_abi3 = sys.implementation.name == "cpython" and not sysconfig.get_config_var("Py_GIL_DISABLED")
        if os.environ.get("MALA_CONTEXT_COMPILE") == "0" or os.name != "posix" or not has_abi3:
            return
        self._work = tempfile.TemporaryDirectory()
        into = self.root if version == "editable" else self._work.name
        try:
            built = compiled(self.root, into)
        except Exception as error:  # noqa: BLE001  (setuptools raises several kinds, SystemExit not among them)
            self.app.display_warning(f"the C sources were not compiled, replay and audit will be slower: {error}")
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"{TAG}-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
        if version != "editable":
            build_data["force_include"].update({path: os.path.relpath(path, into) for path in built})

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was compiled, which is in the wheel now."""
        if hasattr(self, "_work"):
            self._work.cleanup()


def compiled(root: str, into: str) -> list[str]:
    """Compile below a folder and return the files' paths; raises what setuptools raises."""
    from setuptools import Distribution, Extension

    flags = ["-O3", "-std=c11", "-fvisibility=hidden"]
    extensions = [
        Extension(name, [os.path.join(root, each) for each in sources], py_limited_api=True, extra_compile_args=flags)
        for name, sources in SOURCES.items()
    ]
    command = Distribution({"name": "mala-context", "ext_modules": extensions}).get_command_obj("build_ext")
    command.build_lib = into
    command.force = True  # one that is there may be of another header, or of other flags
    with tempfile.TemporaryDirectory() as temporary:
        command.build_temp = temporary
        command.ensure_finalized()
        command.run()
    return [str(path) for path in command.get_outputs()]
