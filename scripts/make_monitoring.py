"""Make docs/monitoring/: a Grafana dashboard and Prometheus alerts of Headgate's metrics.

Panels and alerts are listed below; what a metric says and when to worry comes from the tables of
docs/operations.md, which a test compares with a running node. ``--check`` only compares.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "operations.md"
FOLDER: Final = ROOT / "docs" / "monitoring"
ROW: Final = re.compile(r"^\| (`headgate_[^|]*) \| ([^|]*) \| ([^|]*) \|$", re.MULTILINE)
NAME: Final = re.compile(r"`(headgate_[a-z0-9_]+)`")
METRIC: Final = re.compile(r"\b((?:headgate|process)_[a-z0-9_]+)\b")
NODE: Final = 'instance=~"$instance"'
"""Selects the nodes chosen in the dashboard; part of each selector."""
COLUMNS: Final = 24
WIDTH: Final = 8
HEIGHT: Final = 7


class Panel(NamedTuple):
    """One chart. ``expr`` has ``{}`` where the selector of nodes goes."""

    title: str
    expr: str
    legend: str
    unit: str = "short"


def _rate(metric: str, by: str) -> str:
    return f"sum by ({by}) (rate({metric}{{}}[$__rate_interval]))"


def _quantile(metric: str, by: str) -> str:
    buckets = f"sum by (le, {by}) (rate({metric}_bucket{{}}[$__rate_interval]))"
    return f"histogram_quantile(0.99, {buckets})"


ROWS: Final[dict[str, list[Panel]]] = {
    "Node": [
        Panel("Connections", "sum by (protocol) (headgate_connections{})", "{{protocol}}"),
        Panel("Requests", _rate("headgate_requests_total", "protocol, api"),
              "{{protocol}} {{api}}", "reqps"),
        Panel("Latency, 99th percentile",
              _quantile("headgate_request_seconds", "protocol, api"),
              "{{protocol}} {{api}}", "s"),
        Panel("Event loop lag", "headgate_loop_lag_seconds{}", "{{instance}}", "s"),
        Panel("CPU", "rate(process_cpu_seconds_total{}[$__rate_interval])", "{{instance}}",
              "percentunit"),
        Panel("Memory", "process_resident_memory_bytes{}", "{{instance}}", "bytes"),
        Panel("Free disk", "headgate_disk_free_bytes{} / headgate_disk_size_bytes{}",
              "{{instance}}", "percentunit"),
        Panel("Refused logins",
              _rate("headgate_refused_logins_total", "protocol"),
              "{{protocol}}", "ops"),
        Panel("Faults of clients",
              _rate("headgate_peer_faults_total", "protocol, kind"),
              "{{protocol}} {{kind}}", "ops"),
        Panel("Days until certificates expire",
              "(headgate_certificate_expiry_timestamp_seconds{} - time()) / 86400",
              "{{instance}} {{listener}}"),
        Panel("Open file descriptors", "process_open_fds{} / process_max_fds{}", "{{instance}}",
              "percentunit"),
        Panel("Throttled", _rate("headgate_quota_throttles_total", "quota"),
              "{{quota}}", "ops"),
    ],
    "Topics": [
        Panel("Records in",
              _rate("headgate_topic_records_in_total", "namespace, topic"),
              "{{topic}}", "ops"),
        Panel("Bytes in",
              _rate("headgate_topic_bytes_in_total", "namespace, topic"),
              "{{topic}}", "Bps"),
        Panel("Bytes out",
              _rate("headgate_topic_bytes_out_total", "namespace, topic"),
              "{{topic}}", "Bps"),
        Panel("Records out",
              _rate("headgate_topic_records_out_total", "namespace, topic"),
              "{{topic}}", "ops"),
        Panel("Stored", "sum by (namespace, topic) (headgate_topic_bytes{})", "{{topic}}",
              "bytes"),
        Panel("Damaged batches", "headgate_corrupt_batches_total{}", "{{instance}} {{topic}}"),
    ],
    "Consumer groups": [
        Panel("Lag in messages", "sum by (namespace, group, topic) (headgate_group_lag{})",
              "{{group}} {{topic}}"),
        Panel("Lag in time", "max by (namespace, group, topic) (headgate_group_lag_seconds{})",
              "{{group}} {{topic}}", "s"),
        Panel("Groups by state", "sum by (state) (headgate_groups{})", "{{state}}"),
        Panel("Members", "headgate_group_members{}", "{{instance}}"),
        Panel("Commits", "rate(headgate_offset_commits_total{}[$__rate_interval])",
              "{{instance}}", "ops"),
        Panel("Oldest transaction", "headgate_transaction_oldest_seconds{}", "{{instance}}", "s"),
    ],
    "Queues": [
        Panel("Messages", "sum by (namespace, queue, group, state) (headgate_queue_depth{})",
              "{{queue}} {{state}}"),
        Panel("Oldest message",
              "max by (namespace, queue, group) (headgate_queue_oldest_seconds{})",
              "{{queue}}", "s"),
        Panel("Outcomes",
              _rate("headgate_queue_outcomes_total", "namespace, queue, what"),
              "{{queue}} {{what}}", "ops"),
        Panel("Waiting receivers", "headgate_queue_receivers{}", "{{instance}}"),
        Panel("Delayed messages", "headgate_delayed_messages{}", "{{instance}}"),
        Panel("Refused appends of due messages",
              "rate(headgate_delayed_refusals_total{}[$__rate_interval])", "{{instance}}", "ops"),
    ],
    "MQTT": [
        Panel("Sessions", "sum by (state) (headgate_mqtt_sessions{})", "{{state}}"),
        Panel("Messages", _rate("headgate_mqtt_messages_total", "what"),
              "{{what}}", "ops"),
        Panel("Retained messages", "headgate_mqtt_retained_messages{}", "{{instance}}"),
    ],
    "Storage": [
        Panel("Sync, 99th percentile",
              _quantile("headgate_wal_sync_seconds", "instance"),
              "{{instance}}", "s"),
        Panel("Not durable yet", "headgate_wal_queued_bytes{}", "{{instance}}", "bytes"),
        Panel("Written", "rate(headgate_wal_written_bytes_total{}[$__rate_interval])",
              "{{instance}}", "Bps"),
        Panel("Segments of the log", "headgate_wal_segments{}", "{{instance}}"),
        Panel("Reads of the disk", "rate(headgate_disk_reads_total{}[$__rate_interval])",
              "{{instance}}", "ops"),
        Panel("Failures of settling", "headgate_settling_failures_total{}", "{{instance}}"),
    ],
}  # fmt: skip


class Alert(NamedTuple):
    """One alert; its text is what docs/operations.md says of ``metric``."""

    name: str
    metric: str
    expr: str
    lasts: str
    severity: str
    summary: str


ALERTS: Final = [
    Alert("HeadgateDown", "", 'up{job=~".*headgate.*"} == 0', "1m", "critical",
          "{{ $labels.instance }} does not answer"),
    Alert("HeadgateLoopLag", "headgate_loop_lag_seconds", "headgate_loop_lag_seconds > 0.1",
          "1m", "warning", "the event loop of {{ $labels.instance }} is {{ $value }} s late"),
    Alert("HeadgateDiskAlmostFull", "headgate_disk_free_bytes",
          "headgate_disk_free_bytes / headgate_disk_size_bytes < 0.1", "5m", "critical",
          "{{ $labels.instance }} has {{ $value | humanizePercentage }} of its disk left"),
    Alert("HeadgateDiskFullInADay", "headgate_disk_free_bytes",
          "predict_linear(headgate_disk_free_bytes[6h], 86400) < 0", "1h", "warning",
          "the disk of {{ $labels.instance }} will be full within a day"),
    Alert("HeadgateCertificateExpires", "headgate_certificate_expiry_timestamp_seconds",
          "headgate_certificate_expiry_timestamp_seconds - time() < 14 * 86400", "1h", "warning",
          "the certificate of {{ $labels.listener }} on {{ $labels.instance }} expires soon"),
    Alert("HeadgateRefusedLogins", "headgate_refused_logins_total",
          "sum by (instance, protocol) (rate(headgate_refused_logins_total[5m])) > 1", "10m",
          "warning", "{{ $labels.instance }} refuses logins of {{ $labels.protocol }}"),
    Alert("HeadgateConnectionsRefused", "headgate_connections_refused_total",
          "increase(headgate_connections_refused_total[5m]) > 0", "0m", "warning",
          "{{ $labels.instance }} closes new connections of {{ $labels.protocol }}"),
    Alert("HeadgateDescriptorShortage", "headgate_descriptor_shortages_total",
          "increase(headgate_descriptor_shortages_total[5m]) > 0", "0m", "critical",
          "{{ $labels.instance }} has no file descriptors left"),
    Alert("HeadgateCorruptBatches", "headgate_corrupt_batches_total",
          "headgate_corrupt_batches_total > 0", "0m", "critical",
          "{{ $labels.instance }} has damaged batches in topic {{ $labels.topic }}"),
    Alert("HeadgateSettlingFails", "headgate_settling_failures_total",
          "increase(headgate_settling_failures_total[15m]) > 0", "15m", "critical",
          "{{ $labels.instance }} cannot settle its log"),
    Alert("HeadgateProducersPaused", "headgate_wal_queued_bytes",
          "headgate_wal_queued_bytes > 48 * 1024 * 1024", "2m", "warning",
          "the disk of {{ $labels.instance }} is too slow for its producers"),
    Alert("HeadgateGroupBehind", "headgate_group_lag_seconds",
          "headgate_group_lag_seconds > 3600", "10m", "warning",
          "group {{ $labels.group }} is {{ $value | humanizeDuration }} behind in "
          "{{ $labels.topic }}"),
    Alert("HeadgateGroupPositionsLeftOut", "headgate_group_positions_left_out",
          "headgate_group_positions_left_out > 0", "10m", "warning",
          "the lag of groups on {{ $labels.instance }} is not complete"),
    Alert("HeadgateQueueOldest", "headgate_queue_oldest_seconds",
          "headgate_queue_oldest_seconds > 3600", "10m", "warning",
          "a message waits for {{ $value | humanizeDuration }} in queue {{ $labels.queue }}"),
    Alert("HeadgateDeadLetters", "headgate_queue_outcomes_total",
          'increase(headgate_queue_outcomes_total{what=~"dead_lettered|dropped|corrupt"}[5m]) > 0',
          "0m", "warning",
          "queue {{ $labels.queue }} has messages that are {{ $labels.what }}"),
    Alert("HeadgateTransactionHangs", "headgate_partition_transaction_oldest_seconds",
          "headgate_partition_transaction_oldest_seconds > 900", "5m", "warning",
          "a transaction on {{ $labels.instance }} holds back readers"),
    Alert("HeadgateDelayedRefused", "headgate_delayed_refusals_total",
          "increase(headgate_delayed_refusals_total[5m]) > 0", "5m", "warning",
          "due messages cannot be appended on {{ $labels.instance }}"),
    Alert("HeadgateSpansDropped", "headgate_spans_dropped_total",
          "increase(headgate_spans_dropped_total[5m]) > 0", "10m", "warning",
          "{{ $labels.instance }} drops spans"),
]  # fmt: skip


class Meaning(NamedTuple):
    """Meaning of a metric by docs/operations.md, without Markdown's marks."""

    says: str
    worry: str


def meanings() -> dict[str, Meaning]:
    """Return the tables of docs/operations.md by metric."""
    found: dict[str, Meaning] = {}
    for names, says, worry in ROW.findall(PAGE.read_text()):
        meaning = Meaning(_plain(says), _plain(worry))
        found.update(dict.fromkeys(NAME.findall(names), meaning))
    return found


def _plain(text: str) -> str:
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text).replace("`", "").strip()


def _description(expr: str, known: dict[str, Meaning]) -> str:
    """Return what an expression's first metric says. Error: ``KeyError`` for an unknown one."""
    for name in METRIC.findall(expr):
        if name.startswith("process_"):
            continue
        base = re.sub(r"_bucket$", "", name)
        says, worry = known[base]
        return says if worry == "-" else f"{says}. Worry when: {worry}"
    return ""


def dashboard(known: dict[str, Meaning]) -> dict[str, Any]:
    """Return the dashboard as Grafana's JSON model, schema version 38 (Grafana 10)."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS.items():
        panels.append({
            "type": "row", "title": title, "collapsed": False, "panels": [],
            "id": len(panels) + 1, "gridPos": {"x": 0, "y": top, "w": COLUMNS, "h": 1},
        })  # fmt: skip
        top += 1
        per_line = COLUMNS // WIDTH
        for number, panel in enumerate(row):
            line, column = divmod(number, per_line)
            position = {"x": column * WIDTH, "y": top + line * HEIGHT, "w": WIDTH, "h": HEIGHT}
            panels.append(_panel(panel, len(panels) + 1, position, known))
        top += -(-len(row) // per_line) * HEIGHT
    datasource = {"name": "datasource", "label": "Prometheus", "type": "datasource",
                  "query": "prometheus"}  # fmt: skip
    instance = {
        "name": "instance", "label": "Node", "type": "query", "refresh": 2, "multi": True,
        "includeAll": True, "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": "label_values(headgate_build_info, instance)",
        "current": {"text": ["All"], "value": ["$__all"]},
    }  # fmt: skip
    return {
        "title": "Headgate", "uid": "headgate", "tags": ["headgate"], "schemaVersion": 38,
        "editable": True, "graphTooltip": 1, "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [datasource, instance]}, "panels": panels,
    }  # fmt: skip


def _panel(
    panel: Panel, number: int, position: dict[str, int], known: dict[str, Meaning]
) -> dict[str, Any]:
    datasource = {"type": "prometheus", "uid": "${datasource}"}
    return {
        "type": "timeseries", "id": number, "title": panel.title, "gridPos": position,
        "description": _description(panel.expr, known), "datasource": datasource,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [{
            "refId": "A", "datasource": datasource, "legendFormat": panel.legend,
            "expr": panel.expr.replace("{}", f"{{{NODE}}}"),
        }],
    }  # fmt: skip


def alerts(known: dict[str, Meaning]) -> str:
    """Return the rules in Prometheus' YAML; strings are JSON's, which YAML reads."""
    lines = [
        "# Generated by scripts/make_monitoring.py from docs/operations.md.",
        "groups:",
        "  - name: headgate",
        "    rules:",
    ]
    for alert in ALERTS:
        worry = known[alert.metric].worry if alert.metric else "it stopped, or is unreachable"
        lines += [
            f"      - alert: {alert.name}",
            f"        expr: {json.dumps(alert.expr)}",
            f"        for: {alert.lasts}",
            f"        labels: {{severity: {alert.severity}}}",
            "        annotations:",
            f"          summary: {json.dumps(alert.summary)}",
            f"          description: {json.dumps('Worry when: ' + worry, ensure_ascii=False)}",
        ]
    return "\n".join(lines) + "\n"


def files() -> dict[Path, str]:
    """Return the generated files."""
    known = meanings()
    return {
        FOLDER / "grafana-dashboard.json": json.dumps(dashboard(known), indent=1) + "\n",
        FOLDER / "alerts.yml": alerts(known),
    }


def main() -> int:
    """Write the files, or with ``--check`` say which of them are not up to date."""
    stale = [path for path, text in files().items()
             if not path.exists() or path.read_text() != text]  # fmt: skip
    if "--check" in sys.argv[1:]:
        for path in stale:
            name = path.relative_to(ROOT)
            sys.stdout.write(f"{name} is not up to date: run scripts/make_monitoring.py\n")
        return int(bool(stale))
    FOLDER.mkdir(exist_ok=True)
    for path, text in files().items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
