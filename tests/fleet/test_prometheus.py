"""Debian's Prometheus: it reads our rules, scrapes a process of ours, and fires an alert."""

import json
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest
import yaml
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import start_http_server

from mala_context.agent.telemetry.otel import OpenTelemetryObserver
from mala_context.agent.telemetry.records import ContextOverflow
from tests.helpers.telemetry_tools import EACH, MODEL, updated
from tests.project.test_telemetry_grafana import DASHBOARD, FOLDER, PANELS

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("prometheus")]
SECONDS = 30


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_alert_rules_can_be_read():
    done = run("promtool", "check", "rules", str(FOLDER / "alerts.yml"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_fires_where_it_must_and_nowhere_else():
    done = run("promtool", "test", "rules", str(FOLDER / "alerts_test.yml"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_query_of_the_dashboard_can_be_read(tmp_path):
    queries = [
        target["expr"].replace("$__rate_interval", "5m").replace("$by", by)
        for panel in PANELS
        for target in panel["targets"]
        for by in ("instance", "job")
    ]
    rules = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(queries)]
    path = tmp_path / "queries.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = run("promtool", "check", "rules", str(path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(queries)} rules found" in done.stdout


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


class Prometheus:
    """A server that scrapes one endpoint five times a second, with our rules."""

    def __init__(self, folder, endpoint_port):
        shutil.copy(FOLDER / "alerts.yml", folder / "alerts.yml")
        config = {
            "global": {"scrape_interval": "200ms", "evaluation_interval": "200ms"},
            "rule_files": ["alerts.yml"],
            "scrape_configs": [{"job_name": "agents", "static_configs": [{"targets": [f"127.0.0.1:{endpoint_port}"]}]}],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self._port = free_port()
        self._log = open(folder / "log", "wb")  # noqa: SIM115 - closed with the server
        self._process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self._port}",
            ],
            stdout=self._log,
            stderr=self._log,
        )

    def close(self):
        self._process.terminate()
        self._process.wait(timeout=20)
        self._log.close()

    def get(self, path, **query):
        url = f"http://127.0.0.1:{self._port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=5) as answer:
            return json.load(answer)["data"]

    def value(self, query):
        """Return the one value of a query; `None` while there is none, or no server yet."""
        try:
            found = self.get("query", query=query)["result"]
        except (urllib.error.URLError, ConnectionError):
            return None
        return float(found[0]["value"][1]) if found else None

    def comes_to(self, query, wanted):
        """Wait until a query's value is what is wanted; return the last value."""
        return self._until(query, lambda value: value == wanted)

    def known(self, query):
        """Wait until a query has a value, which it lacks for a moment where a busy machine scraped too late."""
        return self._until(query, lambda value: value is not None)

    def _until(self, query, enough):
        end, pause = time.monotonic() + SECONDS, threading.Event()
        value = self.value(query)
        while not enough(value) and time.monotonic() < end:
            pause.wait(0.05)
            value = self.value(query)
        return value


@pytest.fixture(scope="module")
def agents():
    """A process's metrics as an endpoint: an observer, and the port."""
    meters = MeterProvider(metric_readers=[PrometheusMetricReader()])
    observer = OpenTelemetryObserver(meter_provider=meters)
    server, thread = start_http_server(0, addr="127.0.0.1")
    yield observer, server.server_port
    server.shutdown()
    server.server_close()
    thread.join()
    meters.shutdown()


@pytest.fixture(scope="module")
def prometheus(agents, tmp_path_factory):
    made = Prometheus(tmp_path_factory.mktemp("prometheus"), agents[1])
    yield made
    made.close()


def test_a_prometheus_server_scrapes_what_happens(agents, prometheus):
    observer, _ = agents
    for record in EACH:
        observer(record)
    share = f'gen_ai_context_utilization{{gen_ai_request_model="{MODEL}",mala_context_agent="main"}}'
    assert prometheus.comes_to(share, 0.5) == 0.5
    observer(updated(900, session="s3"))
    assert prometheus.comes_to(share, 0.9) == 0.9
    assert prometheus.comes_to("sum(mala_context_compactions_total)", 1) == 1
    assert prometheus.known("gen_ai_context_active") == 2
    before = "histogram_quantile(0.5, sum by (le) (mala_context_compaction_tokens_before_bucket))"
    assert 0 < prometheus.known(before) <= 1_000
    assert {each["health"] for each in prometheus.get("targets")["activeTargets"]} == {"up"}
    assert not [
        rule for group in prometheus.get("rules")["groups"] for rule in group["rules"] if rule["health"] == "err"
    ]
    check_panels(prometheus)


def check_panels(prometheus):
    """Assert that every panel finds its series; a rate has no value after a second, so the series alone are asked."""
    for panel in PANELS:
        for target in panel["targets"]:
            for variable in DASHBOARD["templating"]["list"][1:]:
                target["expr"] = target["expr"].replace(f"${variable['name']}", ".*")
            for selector in re.findall(r"(?:[a-z_]+)?\{[^}]*\}", target["expr"]):
                assert prometheus.known(f"count({selector})"), (panel["title"], selector)


def test_an_alert_fires_when_a_window_is_full(agents, prometheus):
    observer, _ = agents
    firing = 'count(ALERTS{alertname="ContextOverflow",alertstate="firing",severity="critical"})'
    observer(ContextOverflow("terminal_reason"))
    assert prometheus.comes_to(firing, 1) == 1
    (alert,) = [each for each in prometheus.get("alerts")["alerts"] if each["labels"]["alertname"] == "ContextOverflow"]
    assert alert["annotations"]["summary"] == "A request was refused because the context window is full"


def test_ten_thousand_sessions_stay_few_series(agents, prometheus):
    observer, _ = agents
    for number in range(10_000):
        observer(updated(number % 1_000 + 1, session=f"many-{number}", model=f"model-{number % 40}"))
    held = sum(level.contexts for level in observer._live.levels().values())
    assert held >= 10_000
    assert prometheus.comes_to("sum(gen_ai_context_active)", held) == held
    sets = 'count(count without (le) ({otel_scope_name="mala_context",__name__!~".*_(bucket|sum|created)"}))'
    assert 0 < prometheus.known(sets) <= 200
