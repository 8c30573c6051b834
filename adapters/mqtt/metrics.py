"""Metrics of the MQTT endpoint; they are read only when somebody scrapes."""

from adapters.mqtt.node import Node
from gateway.metrics import Metrics


def register_metrics(metrics: Metrics, node: Node) -> None:
    """Register the figures of one node."""
    counters, sessions = node.counters, node.sessions
    metrics.gauges(
        "headgate_mqtt_sessions",
        "Sessions, by whether their client is connected.",
        ("state",),
        lambda: [
            (("connected",), sessions.connected),
            (("away",), sessions.count - sessions.connected),
        ],
    )
    metrics.gauge(
        "headgate_mqtt_subscriptions",
        "Subscriptions of all sessions.",
        lambda: sessions.subscription_count,
    )
    metrics.gauge(
        "headgate_mqtt_retained_messages", "Retained messages.", lambda: len(node.retained)
    )
    metrics.gauge(
        "headgate_mqtt_retained_bytes",
        "Bytes of retained messages and their topic names.",
        lambda: node.retained.size_bytes,
    )
    metrics.gauge(
        "headgate_mqtt_lagging_receivers",
        "Receivers that are behind at QoS 0 and read the log, one for each partition.",
        lambda: node.feeds.slow_receiver_count,
    )
    metrics.counters_fn(
        "headgate_mqtt_messages",
        "Messages by what became of them.",
        ("what",),
        lambda: [
            (("received",), counters.publish_received),
            (("sent",), counters.publish_sent),
            (("redelivered",), counters.redelivered),
            (("duplicate",), counters.duplicates),
            (("refused",), counters.publish_refused),
            (("dropped",), counters.dropped),
            (("too_large",), counters.too_large),
            (("expired",), counters.expired),
            (("beyond_backlog",), counters.backlog_skipped),
        ],
    )
    metrics.counter_fn(
        "headgate_mqtt_scanned_records",
        "Records read for sessions that were behind.",
        lambda: node.feeds.records_scanned,
    )
    metrics.counter_fn(
        "headgate_mqtt_ended_subscriptions_dropped",
        "Ended subscriptions of which a rest was to be delivered, dropped as too many.",
        lambda: counters.ended_dropped,
    )
    metrics.counters_fn(
        "headgate_mqtt_skipped_records",
        "Records of MQTT topics that are no MQTT messages, by why.",
        ("why",),
        lambda: [((why,), count) for why, count in node.feeds.skipped.items()],
    )
    metrics.counter_fn(
        "headgate_mqtt_wills_published", "Wills published.", lambda: counters.wills_published
    )
    metrics.counter_fn(
        "headgate_mqtt_takeovers",
        "Connections closed because their client came again.",
        lambda: counters.takeovers,
    )
