"""The dashboard and the alerts against what a Prometheus exporter shows of our metrics."""

import json
import pathlib
import re

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import REGISTRY, generate_latest

from mala_context.agent.telemetry.otel import OpenTelemetryObserver
from tests.helpers.telemetry_tools import EACH

FOLDER = pathlib.Path(__file__).parents[2] / "docs" / "grafana"
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text())
RULES = [rule for group in yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"] for rule in group["rules"]]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
VARIABLES = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
QUERIES = {
    **{f"{panel['title']} {each['refId']}": each["expr"] for panel in PANELS for each in panel["targets"]},
    **{f"alert: {rule['alert']}": rule["expr"] for rule in RULES},
    **{f"variable: {each['name']}": each["query"]["query"] for each in VARIABLES.values() if each["type"] == "query"},
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


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_every_panel_shows_the_instances_that_were_chosen(panel):
    """Among many machines, a panel for all together does not say which of them is full."""
    assert all('job=~"$job",instance=~"$instance"' in each["expr"] for each in panel["targets"])
    if panel["type"] in ("timeseries", "gauge"):
        assert all("$by" in each["expr"] and "{{$by}}" in each["legendFormat"] for each in panel["targets"])


def test_lines_are_by_instance_or_by_job():
    assert VARIABLES["by"]["query"].split(",") == [each["value"] for each in VARIABLES["by"]["options"]]
    assert VARIABLES["by"]["current"]["value"] == "instance"
    assert 'job=~"$job"' in VARIABLES["instance"]["query"]["query"]


def test_the_page_names_every_alert():
    page = (FOLDER.parent / "how-to" / "telemetry.md").read_text()
    assert re.findall(r"^\| `([A-Z]\w+)` \|", page, re.MULTILINE) == [rule["alert"] for rule in RULES]


# -- Grafana's own schema, as its SDK has it: what of a dashboard it does not know is lost on the way through it ---

FOR_PEOPLE = {"definition"}
"""Keys that Grafana writes beside a variable's query, in words, and that its schema leaves out."""


def unknown_to_grafana(dashboard):
    """Return the paths of what the types of Grafana's dashboards do not hold, or hold as something else."""
    register_default_plugins()
    known = json.loads(JSONEncoder().encode(Dashboard.from_json(json.loads(json.dumps(dashboard)))))
    return list(_lost(dashboard, known, "dashboard"))


def _lost(ours, theirs, path):
    if type(ours) is not type(theirs):
        yield path
    elif isinstance(ours, dict):
        for key, value in ours.items():
            if key not in FOR_PEOPLE:
                yield from _lost(value, theirs.get(key), f"{path}.{key}")
    elif isinstance(ours, list):
        if len(ours) != len(theirs):
            yield path
        for place, (one, other) in enumerate(zip(ours, theirs, strict=False)):
            yield from _lost(one, other, f"{path}[{place}]")
    elif ours != theirs:
        yield path


def test_grafana_knows_all_that_the_dashboard_says():
    assert unknown_to_grafana(DASHBOARD) == []


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda each: each.update(panles=[]), "dashboard.panles"),
        (lambda each: each["panels"][1].update(titel="x"), "dashboard.panels[1].titel"),
        (lambda each: each["panels"][1]["gridPos"].update(width=12), "dashboard.panels[1].gridPos.width"),
        (lambda each: each["panels"][1]["targets"][0].update(query="up"), "dashboard.panels[1].targets[0].query"),
        (lambda each: each["templating"]["list"][1].update(refreshing=2), "dashboard.templating.list[1].refreshing"),
    ],
)
def test_what_grafana_does_not_know_is_found(change, path):
    dashboard = json.loads(json.dumps(DASHBOARD))
    change(dashboard)
    assert unknown_to_grafana(dashboard) == [path]
