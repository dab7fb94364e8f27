"""The names that are exported, against the page that lists them and the conventions that they follow."""

import pathlib
import re
from typing import get_args

import pytest

from mala_context.agent.telemetry import names, otel, records
from mala_context.guard.overflow import ContextOverflow
from mala_context.tracking.windows import WindowState

PAGE = (pathlib.Path(__file__).parents[3] / "docs" / "reference" / "telemetry.md").read_text()
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| ")]
METRICS = {row[0].strip("`"): row[1:] for row in ROWS if len(row) == 5}
LABELS = {row[1].split("`")[1]: (row[0], row[2]) for row in ROWS if len(row) == 3 and "`" in row[1] and "." in row[1]}
RECORDS = {
    row[0].strip("`"): re.findall(r"`(\w+)`", row[2]) for row in ROWS if len(row) == 3 and row[2].startswith("`")
}


def test_the_page_lists_each_metric_as_it_is():
    listed = {name: row for name, row in METRICS.items() if name not in {"metric", "--"}}
    assert list(listed) == [metric.name for metric in names.METRICS]
    for metric in names.METRICS:
        kind, unit, words, labels_of = listed[metric.name]
        assert (kind, unit.strip("`"), words) == (metric.kind, metric.unit, metric.words)
        assert labels_of.split(", ") == [LABELS[label][0] for label in metric.labels]


@pytest.mark.parametrize(
    ("label", "values"),
    [
        (names.THRESHOLD, get_args(records.Threshold)),
        (names.ACTION, get_args(records.GuardAction)),
        (names.TRIGGER, otel.COMPACTION_TRIGGERS | otel.ARCHIVE_TRIGGERS | {otel.OTHER, otel.UNKNOWN}),
        (names.OUTCOME, get_args(records.UploadOutcome)),
        (names.AGENT, (otel.MAIN, otel.SUBAGENT)),
        (names.WINDOW_STATE, get_args(WindowState)),
    ],
)
def test_the_page_lists_each_value_of_a_label(label, values):
    assert set(re.findall(r"`([a-z_]+)`", LABELS[label][1])) == set(values)


def test_the_page_lists_each_record_and_its_fields():
    for kind in get_args(records.TelemetryRecord):
        fields = getattr(kind, "_fields", None) or list(kind.__dataclass_fields__)
        assert RECORDS[kind.__name__] == list(fields)
    assert records.ContextOverflow is ContextOverflow


def test_a_name_that_is_not_of_the_conventions_is_in_a_namespace_of_ours():
    marked = set(re.findall(r"`(gen_ai\.[a-z_.]+)`(?:, \*\*semconv\*\*| \(\*\*semconv\*\*\))", PAGE))
    used = {value for name, value in vars(names).items() if name.isupper() and isinstance(value, str) and "." in value}
    assert {name for name in used if not name.startswith(("mala_context.", "gen_ai.context."))} == marked
