"""The dashboard and the alerts against what a Prometheus exporter shows of our metrics."""

import json
import pathlib
import re

import pytest
import yaml
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import REGISTRY, generate_latest

from mala_context.telemetry.otel import OpenTelemetryObserver
from tests.telemetry_tools import EACH

FOLDER = pathlib.Path(__file__).parent.parent / "docs" / "grafana"
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text())
RULES = [rule for group in yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"] for rule in group["rules"]]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = {
    **{f"{panel['title']} {each['refId']}": each["expr"] for panel in PANELS for each in panel["targets"]},
    **{f"alert: {rule['alert']}": rule["expr"] for rule in RULES},
    **{f"variable: {each['name']}": each["query"]["query"] for each in DASHBOARD["templating"]["list"][1:]},
}
OURS = re.compile(r"\b(?:gen_ai_context|mala_context)_\w+(?:\(_ratio\)\?)?")


@pytest.fixture(scope="module")
def exported():
    """Return the names of series that are ours, and of their labels."""
    meters = MeterProvider(metric_readers=[PrometheusMetricReader()])
    try:
        observer = OpenTelemetryObserver(meter_provider=meters)
        for record in EACH:
            observer(record)
        text = generate_latest(REGISTRY).decode()
    finally:
        meters.shutdown()
    series = {line.split("{")[0] for line in text.splitlines() if line.startswith(("gen_ai_", "mala_context_"))}
    return series, set(re.findall(r"[{,](\w+)=", text)) | {"job", "instance"}


@pytest.mark.parametrize("name", QUERIES)
def test_every_name_in_a_query_is_exported(exported, name):
    series, labels = exported
    found = OURS.findall(QUERIES[name])
    assert found
    metrics = {each.replace("(_ratio)?", "") for each in found} - labels
    assert metrics
    assert metrics <= series


def test_every_metric_is_in_the_dashboard(exported):
    shown = {each.replace("(_ratio)?", "") for query in QUERIES.values() for each in OURS.findall(query)}
    bare = {re.sub(r"_(bucket|sum|count|created)$", "", name) for name in exported[0]}
    assert {name for name in bare if not any(each.startswith(name) for each in shown)} == set()


def test_the_dashboard_is_one():
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    assert DASHBOARD["uid"]
    assert all(panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"} for panel in PANELS)
    taken = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken
        taken |= cells


def test_the_page_names_every_alert():
    page = (FOLDER.parent / "how-to" / "telemetry.md").read_text()
    assert re.findall(r"^\| `([A-Z]\w+)` \|", page, re.MULTILINE) == [rule["alert"] for rule in RULES]
