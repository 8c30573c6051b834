"""Dashboard and alerts: up to date, accepted by promtool, and of metrics that a node has."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.support import prometheus
from tests.support.gateway import ROOT
from tests.support.sqs_gateway import SqsGateway
from tests.support.waiting import wait_until

pytestmark = pytest.mark.xdist_group("monitoring")

FOLDER = ROOT / "docs" / "monitoring"
METRIC = re.compile(r"\b((?:headgate|process)_[a-z0-9_]+)\b")
EXPOSED = re.compile(r"^# TYPE ([a-z0-9_]+) (\w+)", re.MULTILINE)
ONLY_AFTER_SOMETHING = {"headgate_spans_dropped_total"}  # of what the config turns on


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / "grafana-dashboard.json").read_text())
    return found


def expressions() -> list[str]:
    return [
        target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())
    ]


def alert_expressions() -> list[str]:
    lines = re.findall(r"^ +expr: (.+)$", (FOLDER / "alerts.yml").read_text(), re.MULTILINE)
    return [json.loads(line) for line in lines]


def test_the_files_are_what_the_script_makes() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/make_monitoring.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_panels_do_not_overlap_and_say_something() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        at = panel["gridPos"]
        cells = {
            (at["x"] + column, at["y"] + line)
            for column in range(at["w"])
            for line in range(at["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
        if panel["type"] != "row" and "process_" not in panel["targets"][0]["expr"]:
            assert panel["description"], panel["title"]
    ids = [panel["id"] for panel in dashboard()["panels"]]
    assert len(ids) == len(set(ids))


def test_promtool_accepts_the_alerts() -> None:
    assert "SUCCESS" in prometheus.promtool("check", "rules", str(FOLDER / "alerts.yml"))


def test_alerts_fire_when_they_should_and_not_before() -> None:
    assert "SUCCESS" in prometheus.promtool("test", "rules", str(FOLDER / "alerts.test.yml"))


def test_every_expression_is_of_metrics_that_a_node_has(tmp_path: Path) -> None:
    """A Prometheus scrapes a node with traffic, and evaluates each expression of both files."""
    prometheus.need("prometheus")
    with SqsGateway(tmp_path / "data") as gateway:
        producer = Producer({"bootstrap.servers": gateway.bootstrap})
        producer.produce("orders", b"hello")
        assert producer.flush(30) == 0
        exposed = dict(EXPOSED.findall(gateway.http("/metrics")[1]))
        names = {name for text in (*expressions(), *alert_expressions())
                 for name in METRIC.findall(text)}  # fmt: skip
        bases = {re.sub(r"_bucket$", "", name) for name in names}
        assert sorted(bases - exposed.keys() - ONLY_AFTER_SOMETHING) == []
        for text in expressions():
            for name in METRIC.findall(text):
                is_rate = f"rate({name}" in text
                kind = exposed[re.sub(r"_bucket$", "", name)]
                assert is_rate <= (kind in {"counter", "histogram"}), text

        target = f"127.0.0.1:{gateway.admin_port}"
        with prometheus.running(tmp_path, target) as server:
            wait_until(server.is_ready, within_s=60, what="Prometheus is ready")
            wait_until(
                lambda: bool(server.query('up{job="headgate"} == 1')),
                within_s=60,
                what="the first scrape",
            )
            for text in expressions():
                server.query(text.replace("$__rate_interval", "1m").replace("$instance", ".*"))
            for text in alert_expressions():
                server.query(text)
            selector = '{instance=~".*"}'
            assert server.query(f"headgate_topic_records_in_total{selector}")
