"""A short run of the attack; a long one is `python -m tests.attack --seconds 600`."""

import sys

import pytest

from tests.attack.kinds import KINDS
from tests.attack.machine import Fault, attack, case


@pytest.mark.system
@pytest.mark.parametrize("seed", ["a", "b"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_users_rely_on_holds(kind, seed):
    assert case(kind, KINDS, seed) is None


def leaks(a):
    a.look([a.rng.choice(["config", "archives"]), "--help"])
    raise Fault("it leaks")


def prints(a):
    a.run([sys.executable, "-c", "raise ValueError"])


def writes(a):
    a.look(["config", "init", a.foreign])


def raises(a):
    return a.nothing


def leaves(a):
    a.grow()
    a.whole()


def test_a_fault_is_found_and_named_with_the_line_that_shows_it_again():
    said = []
    kinds = {each.__name__: each for each in (leaks, prints, writes, raises, leaves)}
    counts, faults = attack(kinds, list(kinds), "7", 5, said.append)
    assert said == faults
    assert all(counts.values())
    for name, words in [
        ("leaks", "it leaks"),
        ("prints", "traceback"),
        ("writes", "changes"),
        ("raises", "AttributeError"),
        ("leaves", "nobody said"),
    ]:
        (first, *_) = [each for each in faults if f"--case {name}:7-0\n" in each]
        assert words in first
