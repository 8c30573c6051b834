"""Topic names and filters: section 4.7 of MQTT 5.0 and of 3.1.1, section 4.8.2 of 5.0."""

import pytest

from adapters.mqtt.errors import MqttError, ReasonCode
from adapters.mqtt.subscriptions.filters import (
    QUEUE_GROUP,
    TOPIC_BYTES_MAX,
    check_filter,
    check_publish_topic,
    has_wildcard,
    is_topic_name,
    matches,
    parse_subscription,
)

LEVELS_MAX = 8


@pytest.mark.parametrize(
    "text",
    ["#", "+", "/", "a", "a/#", "+/+", "/+", "+/a/#", "a//b", "a b/ c", "$SYS/#", "é/☃", "+/#"],
)
def test_a_wildcard_that_is_a_whole_level_is_taken(text: str) -> None:
    check_filter(text, levels_max=LEVELS_MAX)


@pytest.mark.parametrize("text", ["a#", "a/#/b", "#/", "##", "#/#", "a/b#", "a/+#", "/#/"])
def test_a_hash_anywhere_but_in_the_last_level_is_refused(text: str) -> None:  # MQTT-4.7.1-1
    with pytest.raises(MqttError) as refused:
        check_filter(text, levels_max=LEVELS_MAX)
    assert refused.value.reason_code is ReasonCode.TOPIC_FILTER_INVALID


@pytest.mark.parametrize("text", ["a+", "+a", "a/+b", "++", "a/b+/c", "+/+a/#"])
def test_a_plus_beside_something_else_is_refused(text: str) -> None:  # MQTT-4.7.1-2
    with pytest.raises(MqttError) as refused:
        check_filter(text, levels_max=LEVELS_MAX)
    assert refused.value.reason_code is ReasonCode.TOPIC_FILTER_INVALID


def test_an_empty_filter_is_refused() -> None:  # MQTT-4.7.3-1
    with pytest.raises(MqttError):
        check_filter("", levels_max=LEVELS_MAX)


def test_u_0000_is_refused_in_filters_and_names() -> None:  # MQTT-4.7.3-2
    with pytest.raises(MqttError):
        check_filter("a\x00b", levels_max=LEVELS_MAX)
    with pytest.raises(MqttError):
        check_publish_topic("a\x00b", levels_max=LEVELS_MAX)


def test_more_than_65535_bytes_are_refused() -> None:  # MQTT-4.7.3-3
    check_filter("é" * (TOPIC_BYTES_MAX // 2), levels_max=LEVELS_MAX)
    with pytest.raises(MqttError):
        check_filter("é" * (TOPIC_BYTES_MAX // 2 + 1), levels_max=LEVELS_MAX)


def test_one_level_above_the_bound_is_refused() -> None:
    check_filter("/".join("a" * LEVELS_MAX), levels_max=LEVELS_MAX)
    with pytest.raises(MqttError):
        check_filter("/".join("a" * (LEVELS_MAX + 1)), levels_max=LEVELS_MAX)


@pytest.mark.parametrize(
    ("topic_filter", "topic"),
    [
        # The examples of section 4.7.1.2 and 4.7.1.3.
        ("sport/tennis/player1/#", "sport/tennis/player1"),
        ("sport/tennis/player1/#", "sport/tennis/player1/ranking"),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon"),
        ("sport/#", "sport"),
        ("#", "sport/tennis"),
        ("sport/tennis/+", "sport/tennis/player1"),
        ("sport/+", "sport/"),
        ("+/+", "/finance"),
        ("/+", "/finance"),
        ("+/tennis/#", "sport/tennis"),
        ("$SYS/#", "$SYS/monitor/Clients"),
        ("$SYS/monitor/+", "$SYS/monitor/Clients"),
        ("a//b", "a//b"),
        ("+/#", "a"),
    ],
)
def test_a_filter_matches(topic_filter: str, topic: str) -> None:
    assert matches(topic_filter, topic)


@pytest.mark.parametrize(
    ("topic_filter", "topic"),
    [
        ("sport/tennis/+", "sport/tennis/player1/ranking"),
        ("sport/+", "sport"),
        ("+", "/finance"),
        ("a/b", "a"),
        ("a", "a/b"),
        ("ACCOUNTS", "Accounts"),  # MQTT-4.7.3-4: nothing is normalised
        ("a/", "a"),
        ("+/#", "$SYS"),
        ("b/#", "a/b"),
    ],
)
def test_a_filter_does_not_match(topic_filter: str, topic: str) -> None:
    assert not matches(topic_filter, topic)


@pytest.mark.parametrize("topic_filter", ["#", "+/monitor/Clients", "+/#"])
def test_a_leading_wildcard_does_not_match_a_dollar(topic_filter: str) -> None:  # MQTT-4.7.2-1
    assert not matches(topic_filter, "$SYS/monitor/Clients")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a/b", (None, "a/b")),
        ("$share/g/a/+", ("g", "a/+")),
        ("$share/g//a", ("g", "/a")),
        ("$share/$queue2/#", ("$queue2", "#")),
        ("$queue/a/#", (QUEUE_GROUP, "a/#")),
        ("$share", (None, "$share")),
        ("$shared/a/b", (None, "$shared/a/b")),
        ("$SYS/#", (None, "$SYS/#")),
    ],
)
def test_group_and_filter_are_told_apart(text: str, expected: tuple[str | None, str]) -> None:
    assert parse_subscription(text, levels_max=LEVELS_MAX) == expected


@pytest.mark.parametrize(
    "text",
    ["$share/g", "$share/", "$share//a", "$share/g/", "$share/g+r/x", "$share/g#/x", "$queue/"],
)
def test_a_shared_subscription_names_a_group_and_a_filter(text: str) -> None:
    """MQTT-4.8.2-1 and MQTT-4.8.2-2."""
    with pytest.raises(MqttError) as refused:
        parse_subscription(text, levels_max=LEVELS_MAX)
    assert refused.value.reason_code is ReasonCode.TOPIC_FILTER_INVALID


def test_the_queues_group_has_no_second_name() -> None:
    """With two names, two subscriptions of a client would be one membership."""
    with pytest.raises(MqttError):
        parse_subscription("$share/$queue/a", levels_max=LEVELS_MAX)


def test_the_filter_of_a_shared_subscription_is_checked_as_any() -> None:
    with pytest.raises(MqttError):
        parse_subscription("$share/g/a#", levels_max=LEVELS_MAX)


@pytest.mark.parametrize("text", ["a/+", "a/#", "#", "+"])
def test_a_publish_to_a_wildcard_is_refused(text: str) -> None:  # MQTT-3.3.2-2
    with pytest.raises(MqttError) as refused:
        check_publish_topic(text, levels_max=LEVELS_MAX)
    assert refused.value.reason_code is ReasonCode.TOPIC_NAME_INVALID
    assert has_wildcard(text)


def test_a_publish_to_the_servers_own_topics_is_refused() -> None:  # section 4.7.2
    check_publish_topic("a/$SYS", levels_max=LEVELS_MAX)
    with pytest.raises(MqttError):
        check_publish_topic("$SYS/uptime", levels_max=LEVELS_MAX)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"$x",
        b"a/+",
        b"#",
        b"a\x00",
        b"\xff",
        b"\xed\xa0\x80",
        b"a" * (TOPIC_BYTES_MAX + 1),
    ],
)
def test_a_key_of_elsewhere_may_be_no_topic_name(data: bytes) -> None:
    assert not is_topic_name(data)


@pytest.mark.parametrize("data", [b"a", b"/", b"a/$b", "é/☃".encode(), b"a" * TOPIC_BYTES_MAX])
def test_a_key_of_elsewhere_may_be_a_topic_name(data: bytes) -> None:
    assert is_topic_name(data)
