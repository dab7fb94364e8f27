"""What survives compactions, on the real CLI."""

import pytest

from mala_context.testing import CANARIES, play_survival, survives

pytestmark = pytest.mark.usefixtures("mala_runs")


@pytest.fixture
def options(mala_home, mala_project):
    return {"home": mala_home, "cwd": mala_project}


async def test_by_reference_every_rule_survives(options):
    found = await survives([canary.text for canary in CANARIES], rounds=3, options=options)
    assert found.model_requests == 0
    assert len(found.tokens) == 3
    assert all(found.fate(canary, number) == "verbatim" for canary in found.canaries for number in (0, 1, 2, 3))


async def test_by_a_summary_what_it_does_not_repeat_is_gone(options):
    found = await play_survival(rounds=2, options=options)
    assert found.model_requests == 2
    fates = {canary.kind: found.fate(canary) for canary in CANARIES}
    assert fates == {**dict.fromkeys(fates, "gone"), "goal": "mentioned"}
    assert "number: gone, gone: A batch has at most 4,711 rows" in found.table()


async def test_the_assertion_says_what_did_not_survive(options):
    with pytest.raises(
        AssertionError, match="not all is verbatim after 1 compactions:\nrule: gone: Never change vendor"
    ):
        await survives(["Never change vendor/lockfile.txt."], rounds=1, config="", options=options)


@pytest.mark.parametrize(
    ("config", "worst"),
    [
        ("context: {search_tool: true}", "reachable"),
        ("context: {compaction: reference, reference: {budget: 1000}}", "reachable"),
    ],
)
async def test_what_can_be_found_again_is_reachable(options, config, worst):
    words = ("zebra quartz", "amber falcon", "velvet harbour", "crimson lantern", "silver meadow", "copper thunder")
    rules = [f"{each} {number * 7919} {'x' * 700}" for number, each in enumerate(words)]
    found = await survives(rules, rounds=2, at_least="reachable", config=config, options=options)
    assert found.fate(found.canaries[0]) == worst


async def test_a_cli_that_does_not_compact_is_an_error(options):
    with pytest.raises(RuntimeError, match="did not compact in each round"):
        await play_survival(rounds=1, options={**options, "env": {"DISABLE_COMPACT": "1"}})
