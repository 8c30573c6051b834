"""``$SYS``: Mosquitto's names, plain numbers, loads as Unix has them."""

from dataclasses import fields, replace

from adapters.mqtt.sys_topics.values import VALUES_MAX, SysTopics, Totals

NOTHING = Totals(**{field.name: 0 for field in fields(Totals)})


def current(sys_topics: SysTopics) -> dict[str, str]:
    return {topic.decode(): payload.decode() for topic, payload in sys_topics.values()}


def test_each_figure_has_its_name() -> None:
    totals = Totals(**{field.name: 100 + n for n, field in enumerate(fields(Totals))})
    sys_topics = SysTopics("1.2.3", 0)

    sys_topics.update(totals, 61_000)

    values = current(sys_topics)
    assert values["$SYS/broker/version"] == "headgate version 1.2.3"
    assert values["$SYS/broker/uptime"] == "61 seconds"
    for name, number in {
        "clients/connected": totals.clients_connected,
        "clients/disconnected": totals.clients_disconnected,
        "clients/maximum": totals.clients_maximum,
        "clients/total": totals.clients_connected + totals.clients_disconnected,
        "clients/expired": totals.clients_expired,
        "messages/received": totals.messages_received,
        "messages/sent": totals.messages_sent,
        "publish/messages/received": totals.publish_messages_received,
        "publish/messages/sent": totals.publish_messages_sent,
        "publish/messages/dropped": totals.publish_messages_dropped,
        "bytes/received": totals.bytes_received,
        "bytes/sent": totals.bytes_sent,
        "retained messages/count": totals.retained_count,
        "store/messages/bytes": totals.retained_bytes,
        "subscriptions/count": totals.subscriptions_count,
        "shared_subscriptions/count": totals.shared_subscriptions_count,
    }.items():
        assert values[f"$SYS/broker/{name}"] == str(number)


def test_a_load_is_a_rate_per_minute_that_fades() -> None:
    sys_topics = SysTopics("1", 0)
    sys_topics.update(NOTHING, 0)
    totals = replace(NOTHING, messages_received=100)

    for second in range(10, 1_210, 10):  # 100 messages in each 10 seconds
        sys_topics.update(totals, second * 1_000)
        totals = replace(totals, messages_received=totals.messages_received + 100)
    busy = current(sys_topics)
    sys_topics.update(replace(totals, messages_received=12_000), 1_260_000)

    assert busy["$SYS/broker/load/messages/received/1min"] == "600.00"
    assert 560 < float(busy["$SYS/broker/load/messages/received/5min"]) < 600
    assert 400 < float(busy["$SYS/broker/load/messages/received/15min"]) < 450
    idle = float(current(sys_topics)["$SYS/broker/load/messages/received/1min"])
    assert 220 < idle < 222  # 600 / e after one minute of silence


def test_only_what_changed_is_published_again() -> None:
    sys_topics = SysTopics("1", 0)
    assert len(sys_topics.update(NOTHING, 10_000)) == len(sys_topics.values())

    changed = sys_topics.update(replace(NOTHING, subscriptions_count=7), 20_000)

    assert dict(changed) == {
        b"$SYS/broker/uptime": b"20 seconds",
        b"$SYS/broker/subscriptions/count": b"7",
    }


def test_a_subscription_finds_the_values_there_are() -> None:
    sys_topics = SysTopics("1", 0)
    sys_topics.update(NOTHING, 10_000)

    assert sys_topics.match("$SYS/broker/uptime") == [(b"$SYS/broker/uptime", b"10 seconds")]
    assert len(sys_topics.match("$SYS/#")) == len(sys_topics.values()) < VALUES_MAX
    assert len(sys_topics.match("$SYS/broker/load/+/received/1min")) == 3
    assert sys_topics.match("#") == []  # MQTT-4.7.2-1
