"""What is counted as lost where a compaction keeps messages: labelled compactions, ordinary ones and by reference."""

import random

import pytest

from mala_context.transcripts.loss import measure
from mala_context.transcripts.reference import ReferenceLimits, build, read_conversation

COMMON = ["never", "change", "module", "before", "tests"]
"""Words that many instructions have."""


def sentence(chance):
    own = ["".join(chance.choices("abcdefghiklmnoprstuvz", k=7)) for _ in range(5)]
    return " ".join([*chance.sample(COMMON, 3), *own]).capitalize() + "."


def prompt(text, uuid):
    return {"type": "user", "uuid": uuid, "message": {"role": "user", "content": text}}


def message(text, uuid):
    return {"role": "user", "text": text, "toolUses": [], "results": 0, "handle": uuid}


def by_reference(chance, said):
    """Return what stays of these sentences word for word, and the ids of rows that stay."""
    padded = [text + " " + "x" * chance.randrange(1, 900) for text in said]
    messages = [message(text, str(place)) for place, text in enumerate(padded)]
    kept = build(
        read_conversation(messages), ReferenceLimits(chance.choice([1_000, 20_000])), path_of=lambda _: "/full.txt"
    )
    return padded, "\n".join(kept.texts()), set()


def ordinary(chance, said):
    """Return a summary that repeats some sentences, and the ids of rows that the CLI preserved."""
    repeated = [text for text in said if chance.random() < 0.4]
    preserved = {str(place) for place in range(len(said)) if place >= len(said) - chance.randrange(4)}
    return said, "\n".join(["The work goes on.", *repeated]), preserved


@pytest.mark.parametrize("way", [by_reference, ordinary])
def test_what_is_lost_is_told_with_precision_and_recall(way):
    """A hundred compactions, each sentence labelled: it stays word for word, or in a row that stays, or it is lost."""
    true = told = both = 0
    for seed in range(100):
        chance = random.Random(seed)
        said, stays, preserved = way(chance, [sentence(chance) for _ in range(chance.randrange(3, 14))])
        rows = [prompt(text, str(place)) for place, text in enumerate(said)]
        lost = {text for place, text in enumerate(said) if text not in stays and str(place) not in preserved}
        found = {item.text for item in measure(rows, stays, preserved=preserved).missing}
        true, told, both = true + len(lost), told + len(found), both + len(lost & found)
    assert true > 50
    assert both / told >= 0.95
    assert both / true >= 0.95


def test_files_and_commands_that_are_lost_are_told_too():
    """A hundred ordinary compactions: a call is repeated by the summary, or in a row that stays, or it is lost."""
    true = told = both = 0
    for seed in range(100):
        chance = random.Random(seed)
        names = ["".join(chance.choices("abcdefghiklmnoprstuvz", k=8)) for _ in range(chance.randrange(3, 30))]
        rows, said = [], []
        for place, name in enumerate(names):
            tool = chance.choice(["Read", "Write", "Bash"])
            said.append(f"make {name} --all" if tool == "Bash" else f"/home/dev/{name}/main.py")
            given = {"command" if tool == "Bash" else "file_path": said[-1]}
            use = {"type": "tool_use", "id": name, "name": tool, "input": given}
            result = {"type": "tool_result", "tool_use_id": name, "content": "x", "is_error": tool == "Bash"}
            rows.append({"type": "assistant", "uuid": f"a{place}", "message": {"role": "assistant", "content": [use]}})
            rows.append({"type": "user", "uuid": f"r{place}", "message": {"role": "user", "content": [result]}})
        _, summary, stays = ordinary(chance, said)
        preserved = {f"{kind}{place}" for place in stays for kind in "ar"}
        lost = {text for place, text in enumerate(said) if text not in summary and str(place) not in stays}
        found = {item.text for item in measure(rows, summary, preserved=preserved).missing}
        true, told, both = true + len(lost), told + len(found), both + len(lost & found)
    assert true > 500
    assert both / told >= 0.95
    assert both / true >= 0.95


def test_kept_words_are_what_the_user_said_and_the_row_around_them_is_not():
    """An ordinary compaction after one by reference loses each of the user's sentences by itself."""
    said = ["Never change module nine.", "Always run the tests before a push."]
    kept = build(
        read_conversation([message(text, text) for text in said]), ReferenceLimits(), path_of=lambda _: "/full.txt"
    )
    rows = [prompt(text, str(place)) for place, text in enumerate([*kept.texts(), "Go on with the work."])]
    assert {item.text for item in measure(rows, "Nothing.").items} == {*said, "Go on with the work."}
