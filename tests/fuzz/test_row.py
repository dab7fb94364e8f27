"""The compiled reader of rows under gcc's sanitizers; see `row.c`."""

import json
import pathlib
import random
import re
import struct
import subprocess

import pytest

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent
FLAGS = ("-g", "-O1", "-std=c11", "-Wall", "-Wextra", "-Werror", "-DSTANDALONE", "-fno-sanitize-recover=all")


def seeds():
    """Lines as transcripts have them, and a few that are near the reader's limits."""
    from tests.unit.analysis.test_replay_columns import ROW

    found = [json.dumps(ROW).encode(), json.dumps(ROW, ensure_ascii=False, separators=(",", ":")).encode()]
    for path in sorted((ROOT / "tests" / "data" / "core").glob("*.jsonl")):
        found += path.read_bytes().splitlines()[:40]
    return [line for line in found if len(line) < 20_000]


def changed(random_, lines):
    """A line with something cut, doubled, replaced or put in, and perhaps another behind it."""
    line = bytearray(random_.choice(lines))
    for _ in range(random_.randrange(4)):
        at, kind = random_.randrange(len(line) + 1), random_.randrange(4)
        if kind == 0:
            del line[at:]
        elif kind == 1:
            del line[at : at + random_.randrange(1, 9)]
        elif kind == 2:
            line[at:at] = line[at : at + random_.randrange(1, 90)]
        else:
            line[at : at + 1] = random_.choice(
                [b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"\0", b"\xff", b"u", b"\n"]
            )
    return bytes(line)


def has_avx2():
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        return " avx2 " in file.read()


@pytest.fixture(scope="module")
def inputs():
    random_, lines = random.Random(5), seeds()
    return [*lines, *(changed(random_, lines) for _ in range(30_000))]


def told(folder, inputs, *flags):
    """What a reader compiled with these flags says, and a sanitizer has nothing against."""
    program = folder / "row"
    include = ROOT / "mala_context" / "analysis" / "replay"
    sanitize = "-fsanitize=address,undefined"
    subprocess.run(["gcc", *FLAGS, *flags, sanitize, "-I", include, HERE / "row.c", "-o", program], check=True)
    data = b"".join(struct.pack("=I", len(line)) + line for line in inputs)
    done = subprocess.run([program], input=data, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-3_000:]
    return done.stdout.decode()


@pytest.fixture(scope="module")
def plainly(tmp_path_factory, inputs):
    return told(tmp_path_factory.mktemp("plain"), inputs, "-U__SSE2__")


@pytest.mark.system
def test_no_byte_outside_of_an_input_is_read(inputs, plainly):
    count, plain = re.match(r"(\d+) inputs, (\d+) plain rows,", plainly).groups()
    assert int(count) == len(inputs)
    assert len(inputs) / 10 < int(plain) < len(inputs)  # both ways are tried


@pytest.mark.system
@pytest.mark.parametrize("flags", [(), ("-mavx2", "-mbmi")], ids=["16 bytes at a time", "32 bytes at a time"])
def test_vectors_find_the_same_and_read_no_byte_outside(tmp_path, inputs, plainly, flags):
    if flags and not has_avx2():
        pytest.skip("this processor has no AVX2")
    assert told(tmp_path, inputs, *flags) == plainly
