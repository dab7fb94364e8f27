"""The compiled counts of a text under gcc's sanitizers: no byte outside of a text is read."""

import pathlib
import subprocess
import sys
import sysconfig

import pytest

ROOT = pathlib.Path(__file__).parent.parent.parent
SOURCE = ROOT / "mala_context" / "tracking" / "_byte_kinds.c"
FLAGS = ("-g", "-O1", "-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fno-sanitize-recover=all")
PROGRAM = """
import importlib.util, random, sys
from mala_context.tracking.byte_kinds import BASE64, BITS, runs_slowly, tally_slowly

spec = importlib.util.spec_from_file_location("_byte_kinds", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
random = random.Random(7)
parts = ["a", "A", "9", "/", " ", "\\n", "\\0", "é", "字", "😀", "\\ud800", "Ab3" * 21, "x" * 59, "y" * 254]
for number in range(20_000):
    text = "".join(random.choices(parts, k=random.randrange(12)))
    assert module.tally(text, BITS) == tally_slowly(text, BITS), ascii(text)
    least = random.choice((1, 5, 60))
    assert module.runs(text, BASE64, least) == runs_slowly(text, BASE64, least), ascii(text)
print("as Python counts")
"""


@pytest.mark.system
def test_no_byte_outside_of_a_text_is_read(tmp_path):
    library = tmp_path / "_byte_kinds.so"
    include = sysconfig.get_path("include")
    subprocess.run(["gcc", *FLAGS, "-fsanitize=address,undefined", "-I", include, SOURCE, "-o", library], check=True)
    runtime = [
        subprocess.run(
            ["gcc", f"-print-file-name={name}.so"], check=True, capture_output=True, text=True
        ).stdout.strip()
        for name in ("libasan", "libubsan")
    ]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, library],
        env={"LD_PRELOAD": " ".join(runtime), "ASAN_OPTIONS": "detect_leaks=0", "PYTHONMALLOC": "malloc"},
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "as Python counts\n", done.stderr[-3_000:]
