"""`python -m tests.attack --seconds 600 --seed 1 --kinds files,numbers`: exit status 1 where a promise broke."""

import argparse
import signal
import sys
import time

from tests.attack.kinds import KINDS
from tests.attack.machine import attack, case

parser = argparse.ArgumentParser(prog="python -m tests.attack")
parser.add_argument("--seconds", type=float, default=60)
parser.add_argument(
    "--seed", default=str(int(time.time())), help="default: the time, so that each run tries other cases"
)
parser.add_argument("--kinds", default=",".join(KINDS), help=f"some of {', '.join(KINDS)}")
parser.add_argument("--case", metavar="KIND:SEED", help="run one case again, as a fault names it")
given = parser.parse_args()
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    # `nohup` has each program ignore it that is started from here; one with a handler is started as from a terminal.
    signal.signal(signal.SIGHUP, lambda *_: None)
if given.case:
    fault = case(*given.case.split(":", 1)[:1], KINDS, given.case.split(":", 1)[1])
    print(fault or "nothing found")
    sys.exit(bool(fault))
counts, faults = attack(
    KINDS, given.kinds.split(","), given.seed, given.seconds, lambda words: print(words, flush=True)
)
print(
    f"seed {given.seed}:",
    ", ".join(f"{count} {name}" for name, count in counts.items()),
    f"cases; {len(faults)} faults",
)
sys.exit(bool(faults))
