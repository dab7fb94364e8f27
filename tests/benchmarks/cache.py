"""The cache ledger beside claude-cache-audit, an independent tool, on the same recordings.

Run with `python tests/benchmarks/cache.py CORPUS [AUDIT]`: CORPUS is a folder of transcripts, AUDIT the command of
claude-cache-audit (it needs no installation beside the project; `pipx run claude-cache-audit` will do). Both read the
same bytes: the transcripts are laid out as the CLI keeps them, subagents in folders of their own. The bound is 1 %.
"""

import gzip
import json
import pathlib
import shlex
import subprocess
import sys
import tempfile

from mala_context.analysis.cache import read_cache, total

NAMES = {"lapsed": "expired", "prefix": "prefix_change", "model": "model_switch", "compaction": "compaction"}
"""Our causes, and the other tool's."""
BOUND = 0.01


def laid_out(corpus, directory):
    """Write the recordings where the other tool looks for them."""
    for path in sorted(pathlib.Path(corpus).iterdir()):
        if ".jsonl" not in path.name:
            continue
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        name = path.name.removesuffix(".gz")
        place = directory / "projects" / "p"
        if "-agent" in name:
            place = place / name.split("-")[0] / "subagents"
        place.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(data)


def theirs(command, directory):
    """Tokens by the other tool: written for 5 minutes and 1 hour, read, and written again by cause."""
    run = [*shlex.split(command), "--all", "--json", "--config-dir", str(directory)]
    found = json.loads(subprocess.run(run, check=True, capture_output=True).stdout)
    split, causes = found["usage_split"], found["rebuilds"]["headline"]["by_cause"]
    tokens = {name: split[f"cache_{other}"]["tokens"] for name, other in (("read", "read"), ("written_5m", "write_5m"))}
    tokens["written_1h"] = split["cache_write_1h"]["tokens"]
    for ours, other in NAMES.items():
        tokens[ours] = causes[other]["rewritten_tokens"]
    return tokens | {"rewritten": found["rebuilds"]["headline"]["rewritten_tokens"]}


def ours(directory):
    """The same by the ledger."""
    use = total(read_cache([str(directory)]))
    tokens = {name: getattr(use, name) for name in ("read", "written_5m", "written_1h", "rewritten")}
    return tokens | {name: dict(use.causes)[name].tokens if name in dict(use.causes) else 0 for name in NAMES}


def main(corpus, command="claude-cache-audit"):
    """Print both, and how far they are apart; return whether all are within the bound."""
    with tempfile.TemporaryDirectory() as name:
        laid_out(corpus, pathlib.Path(name))
        other, mine = theirs(command, name), ours(name)
    print(f"{'tokens':12} {'audit':>15} {'ledger':>15} {'apart':>8}")
    worst = 0.0
    for key, value in other.items():
        apart = (mine[key] - value) / value if value else float(mine[key] > 0)
        worst = max(worst, abs(apart)) if key not in NAMES else worst
        print(f"{key:12} {value:>15,} {mine[key]:>15,} {apart:>+8.2%}")
    print(f"worst of the sums (causes apart): {worst:.2%}, {BOUND:.0%} allowed")
    return worst <= BOUND


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3) or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    sys.exit(0 if main(*sys.argv[1:]) else 1)
