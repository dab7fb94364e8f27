"""One small thing done with each extra, in an environment that has this extra alone: `python extras.py EXTRA`."""

import importlib
import pathlib
import subprocess
import sys
import tempfile

SESSION = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
KEY = "AKIA" + "Q3EGRV7UXJZ5PLMW"
USER = (
    f'{{"type":"user","uuid":"u1","sessionId":"{SESSION}","timestamp":"2026-05-01T12:00:00.000Z","version":"2.1.119",'
    f'"message":{{"role":"user","content":"the key is {KEY}"}}}}'
)
ANSWER = (
    f'{{"type":"assistant","uuid":"u2","parentUuid":"u1","sessionId":"{SESSION}",'
    '"timestamp":"2026-05-01T12:00:01.000Z","message":{"id":"m1","role":"assistant","model":"claude-sonnet-4-5",'
    '"content":[{"type":"text","text":"Noted."}],"usage":{"input_tokens":3,"cache_read_input_tokens":9000,'
    '"output_tokens":4}}}'
)


def command(*words: str) -> str:
    """Return what `mala-context` prints; it must end well."""
    done = subprocess.run(
        [sys.executable, "-m", "mala_context.cli", *words], capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode != 0:
        sys.exit(f"mala-context {' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def transcript() -> str:
    """Write a session of one exchange to the working directory."""
    pathlib.Path(f"{SESSION}.jsonl").write_text(f"{USER}\n{ANSWER}\n", encoding="utf-8")
    return f"{SESSION}.jsonl"


def archive(directory: str, **options: str) -> str:
    """Archive that session."""
    from mala_context import TranscriptArchive

    TranscriptArchive(directory, **options).archive(transcript(), SESSION)
    return directory


def testing() -> None:
    """The fixtures come with the package."""
    pathlib.Path("test_it.py").write_text(
        "def test_it(mala_api):\n    assert mala_api(['Hello.']).url.startswith('http://127.')\n", encoding="utf-8"
    )
    subprocess.run([sys.executable, "-m", "pytest", "-q", "test_it.py"], timeout=120, check=True)


def otel() -> None:
    """An observer takes a record."""
    from mala_context import OpenTelemetryObserver

    OpenTelemetryObserver()(object())


def redact() -> None:
    """A key is masked in an exported copy."""
    command("archives", "export", SESSION, "copy.jsonl", "--redact", "--dir", archive("archives"))
    text = pathlib.Path("copy.jsonl").read_text(encoding="utf-8")
    assert KEY not in text
    assert "Noted." in text


def zstd() -> None:
    """Pieces are packed, and whole behind that."""
    command("archives", "pack", "--dir", archive("archives"))
    assert list(pathlib.Path("archives").rglob("*.zst")), "nothing was packed"
    command("archives", "verify", "--dir", "archives")
    assert command("archives", "cat", SESSION, "--dir", "archives") == f"{USER}\n{ANSWER}\n"


def replay() -> None:
    """Where there are many rows, msgspec decodes them."""
    rows = importlib.import_module("mala_context.transcripts.json_rows")
    for _ in range(1_500):
        rows.objects(b"{}")
    assert rows._decode.__module__.startswith("msgspec")
    assert '"cache_read_tokens": 9000' in command("replay", "--totals", transcript())


def objects() -> None:
    """A bucket in a directory takes a piece."""
    import io

    from mala_context.archive.remote.bucket import bucket_at

    bucket = bucket_at(pathlib.Path("bucket").absolute().as_uri())
    bucket.put("a/b", io.BytesIO(b"bytes"), 5)
    assert bucket.read("a/b") == b"bytes"


def parquet() -> None:
    """Sessions are written as a table."""
    command("replay", transcript(), "--format", "parquet", "-o", "sessions.parquet")
    assert pathlib.Path("sessions.parquet").read_bytes()[:4] == b"PAR1"


def dask() -> None:
    """A cluster of this machine reads a session."""
    assert SESSION in command("replay", transcript(), "--format", "json", "--engine", "dask", "--jobs", "1")


def prices() -> None:
    """An estimate in money."""
    assert "At list prices, an estimate" in command("replay", "--cache", "--money", transcript())


def plot() -> None:
    """A picture is drawn; it needs the machine's cairo."""
    try:
        importlib.import_module("cairosvg")
    except OSError as error:
        print(f"plot: only installed, since the machine has no cairo ({str(error).splitlines()[0]})")
        return
    command("report", transcript(), "-o", "report.png")
    assert pathlib.Path("report.png").read_bytes()[:4] == b"\x89PNG"


def report() -> None:
    """A page is drawn."""
    command("report", transcript(), "-o", "report.html")
    assert "<html" in pathlib.Path("report.html").read_text(encoding="utf-8")


def fuzz() -> None:
    """The fuzzer is there; it and what is below are for work on the project."""
    importlib.import_module("atheris")


def browser() -> None:
    """The driver's client is there."""
    importlib.import_module("selenium.webdriver")


def docs() -> None:
    """Sphinx makes a page with this theme and parser."""
    pathlib.Path("conf.py").write_text('extensions = ["myst_parser"]\nhtml_theme = "furo"\n', encoding="utf-8")
    pathlib.Path("index.md").write_text("# A page\n", encoding="utf-8")
    subprocess.run([sys.executable, "-m", "sphinx", "-q", "-W", ".", "site"], timeout=120, check=True)


def dev() -> None:
    """What the default run of the tests imports."""
    for name in ("hypothesis", "moto", "mypy", "openai", "pytest_asyncio", "trio", "xdist"):
        importlib.import_module(name)


SMOKES = {
    smoke.__name__: smoke
    for smoke in (
        testing,
        otel,
        redact,
        zstd,
        replay,
        objects,
        parquet,
        prices,
        dask,
        plot,
        report,
        browser,
        fuzz,
        docs,
        dev,
    )
}
"""By the extra's name in pyproject.toml."""


if __name__ == "__main__":
    import os

    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        SMOKES[sys.argv[1]]()
        os.chdir("/")
