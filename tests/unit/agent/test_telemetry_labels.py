"""Labels: what others choose comes from a list, and names of models are bounded."""

from hypothesis import given
from hypothesis import strategies as st

from mala_context.agent.telemetry.labels import COMPACTION_TRIGGERS, MOST_MODELS, Models, kind_of, one_of


@given(st.lists(st.one_of(st.none(), st.text(max_size=5)), max_size=60))
def test_whatever_models_there_are_the_labels_are_bounded_and_stay_what_they_were(names):
    models = Models()
    labels = [models.label(name) for name in names]
    assert len(set(labels)) <= MOST_MODELS + 1
    assert [models.label(name) for name in names] == labels
    assert all(label in (name, "other") for label, name in zip(labels, names, strict=True))


def test_named_models_have_their_label_whoever_comes_first():
    models = Models(["mine"], most=2)
    assert [models.label(name) for name in ("a", "b", "mine", None)] == ["a", "other", "mine", "other"]
    assert Models(["a", "b"], most=1).label("b") == "b"


def test_words_from_lists():
    assert [one_of(value, COMPACTION_TRIGGERS) for value in ("auto", "x", None)] == ["auto", "other", "unknown"]
    assert (kind_of(None), kind_of("a1")) == ("main", "subagent")
