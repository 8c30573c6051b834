"""Topic of the log and key that a route gives to an MQTT topic."""

from typing import cast

import pytest

from adapters.mqtt.config import MqttConfig
from adapters.mqtt.route_config import RouteConfig, check_route
from adapters.mqtt.routes import CACHED_TOPIC_BYTES_MAX, Routes
from gateway.partition import Partition


def routes(*configs: RouteConfig) -> Routes:
    return Routes(MqttConfig(routes=configs))


def test_without_routes_all_goes_to_one_topic_under_its_name() -> None:
    found = routes().find(b"a/b", 1)

    assert (found.log_topic, found.key, found.topic_header) == ("mqtt", b"a/b", False)
    assert found.route.partitions == 1


def test_the_first_route_that_matches_wins() -> None:
    made = routes(
        RouteConfig(filter="a/+", topic="first"),
        RouteConfig(filter="a/#", topic="second"),
        RouteConfig(filter="a/b", topic="never"),
    )

    assert [made.find(t, 1).log_topic for t in (b"a/b", b"a", b"a/b/c", b"b")] == [
        "first",
        "second",
        "second",
        "mqtt",
    ]


@pytest.mark.parametrize(
    ("topic_filter", "key", "topic", "expected"),
    [
        ("sensors/+/temp", "{1}", b"sensors/7/temp", b"7"),
        ("+/x/+", "{2}-{1}", b"a/x/b", b"b-a"),
        ("a/+/#", "{2}", b"a/b/c/d", b"c/d"),
        ("a/#", "{1}", b"a", b""),
        ("#", "{1}", b"/a", b"/a"),
        ("a/#", "all", b"a/b", b"all"),
        ("a/+", "<{topic}>", b"a/b", b"<a/b>"),
        ("+", "{1}", "é".encode(), "é".encode()),
        ("+", "{1}", b"{topic}", b"{topic}"),  # what a peer sends is no template
    ],
)
def test_a_key_is_made_of_what_wildcards_stand_for(
    topic_filter: str, key: str, topic: bytes, expected: bytes
) -> None:
    made = routes(RouteConfig(filter=topic_filter, topic="t", key=key))
    found = made.find(topic, 0)
    assert found.key == expected
    assert found.topic_header == (found.key != topic)


def test_qos_0_may_have_a_topic_of_its_own() -> None:
    made = routes(RouteConfig(filter="a/#", topic="kept", qos0_topic="fast", default_qos=2))

    assert [made.find(b"a", qos).log_topic for qos in (0, 1, 2)] == ["fast", "kept", "kept"]
    assert made.find(b"a", 0).route.default_qos == 0
    assert made.find(b"a", 1).route.default_qos == 2


def test_every_topic_of_the_log_is_listed_once() -> None:
    made = routes(
        RouteConfig(filter="a", topic="one", qos0_topic="two", partitions=2),
        RouteConfig(filter="b", topic="one", partitions=5),
    )

    listed = made.log_topics()

    assert [(name, route.partitions) for name, route in listed] == [
        ("one", 5),
        ("two", 2),
        ("mqtt", 1),
    ]
    assert [route.default_qos for _, route in listed] == [1, 0, 1]


def test_what_was_found_is_kept_with_its_target_until_it_is_forgotten() -> None:
    made = routes()
    found = made.find(b"a", 1)
    found.target = cast("Partition", object())

    assert made.find(b"a", 2) is found
    made.forget()
    assert made.find(b"a", 1).target is None


def test_a_huge_topic_name_is_not_kept() -> None:
    made = routes()
    topic = b"x" * (CACHED_TOPIC_BYTES_MAX + 1)
    assert made.find(topic, 1) is not made.find(topic, 1)


@pytest.mark.parametrize(
    "route",
    [
        RouteConfig(filter="a#", topic="t"),
        RouteConfig(filter="$SYS/#", topic="t"),
        RouteConfig(filter="a", topic="a/b"),
        RouteConfig(filter="a", topic="__cursors"),
        RouteConfig(filter="a", topic="t", qos0_topic="x y"),
        RouteConfig(filter="a", topic="t", qos0_topic="t"),
        RouteConfig(filter="a", topic="t", key="{1}"),
        RouteConfig(filter="+/a", topic="t", key="{2}"),
        RouteConfig(filter="+", topic="t", key="{0}"),
        RouteConfig(filter="+", topic="t", key="{name}"),
        RouteConfig(filter="+", topic="t", key="{}"),
        RouteConfig(filter="+", topic="t", key="{1"),
        RouteConfig(filter="+", topic="t", key="a}"),
    ],
    ids=repr,
)
def test_a_route_that_cannot_work_is_refused(route: RouteConfig) -> None:
    with pytest.raises(ValueError, match=r"."):
        check_route(route)


def test_routes_to_one_topic_agree_on_its_default_qos() -> None:
    with pytest.raises(ValueError, match="topic one say QoS 1 and 2"):
        routes(
            RouteConfig(filter="a", topic="one"),
            RouteConfig(filter="b", topic="one", default_qos=2),
        )


def test_the_default_route_takes_all() -> None:
    with pytest.raises(ValueError, match="default route"):
        Routes(MqttConfig(default_route=RouteConfig(filter="a/#", topic="mqtt")))
