"""One route of the config, and what makes a route, or a list of them, wrong."""

import re
from collections.abc import Callable, Iterable
from typing import Final, Literal, TypeAlias

from pydantic import Field

from adapters.mqtt.errors import MqttError
from adapters.mqtt.subscriptions.filters import TOPIC_BYTES_MAX, check_filter
from gateway.config.base import FrozenConfig
from gateway.contributions import built_in_topics
from gateway.errors import InvalidTopicName
from gateway.model import check_topic_name

KeyMaker: TypeAlias = Callable[[str], bytes]

_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")


class RouteConfig(FrozenConfig):
    """Route of MQTT topics to a topic of the log; the first match wins."""

    filter: str = Field(min_length=1, description="MQTT topic filter: `sensors/+/temp`.")
    topic: str = Field(min_length=1, max_length=249, description="Topic of the log.")
    key: str = Field(
        default="",
        description=(
            "Record key: `{1}` is the first level that a wildcard matched, `{topic}` the MQTT "
            "topic name; by default the MQTT topic name."
        ),
    )
    qos0_topic: str | None = Field(
        default=None, max_length=249, description="Topic of the log for QoS 0 alone."
    )
    default_qos: Literal[0, 1, 2] = Field(
        default=1, description="QoS of records that came by another protocol."
    )
    partitions: int = Field(
        default=1, ge=1, le=10_000, description="Partitions of a topic that is not there yet."
    )


def check_route(route: RouteConfig) -> None:
    """Raise ``ValueError`` for a route that cannot work, in one line for the operator."""
    try:
        check_filter(route.filter, levels_max=TOPIC_BYTES_MAX + 1)
        for name in (route.topic, route.qos0_topic):
            if name is not None:
                check_topic_name(name)
    except (MqttError, InvalidTopicName) as error:
        raise ValueError(str(error)) from None
    if route.filter.startswith("$"):
        raise ValueError(f"filter {route.filter[:80]!r} is of the server's own topics")
    for name in {route.topic, route.qos0_topic} & built_in_topics():
        raise ValueError(f"topic {name} is reserved for internal use")
    if route.topic == route.qos0_topic:
        raise ValueError(f"qos0_topic {route.topic} is the route's topic for all")
    key_maker(route)


def check_routes(routes: Iterable[RouteConfig]) -> None:
    """Raise ``ValueError`` unless each route is right, they fit together and the last takes all.

    A record without QoS takes ``default_qos`` of its topic's route, so routes to one topic must
    agree on it; in a ``qos0_topic`` it is 0.
    """
    default_qos: dict[str, int] = {}
    topic_filter = ""
    for route in routes:
        check_route(route)
        topic_filter = route.filter
        wanted = [(route.topic, route.default_qos)]
        if route.qos0_topic is not None:
            wanted.append((route.qos0_topic, 0))
        for name, qos in wanted:
            if default_qos.setdefault(name, qos) != qos:
                msg = f"routes to topic {name} say QoS {default_qos[name]} and {qos} by default"
                raise ValueError(msg)
    if topic_filter != "#":
        raise ValueError(f"the default route's filter is {topic_filter[:80]!r}, not '#'")


def key_maker(route: RouteConfig) -> KeyMaker:
    """Return what makes a record's key of a topic name that matches the route's filter.

    ``{1}`` is what the first wildcard stands for: a level for ``+``, all that is left for ``#``,
    with ``/`` between the levels. Errors: ``ValueError``.
    """
    template = route.key
    if template in ("", "{topic}"):
        return str.encode
    if "{" in (rest := _PLACEHOLDER.sub("", template)) or "}" in rest:
        raise ValueError(f"key {template!r} has a brace without its other one")
    levels = route.filter.split("/")
    wildcards = [index for index, level in enumerate(levels) if level in ("+", "#")]
    for name in _PLACEHOLDER.findall(template):
        if name == "topic":
            continue
        if not name.isdecimal() or not 1 <= int(name) <= len(wildcards):
            msg = f"key {template!r}: {{{name}}} is none of {len(wildcards)} wildcards or {{topic}}"
            raise ValueError(msg)

    def key_of(topic: str) -> bytes:
        def value_of(placeholder: re.Match[str]) -> str:
            name = placeholder[1]
            if name == "topic":
                return topic
            place = wildcards[int(name) - 1]
            values = topic.split("/")
            return "/".join(values[place:]) if levels[place] == "#" else values[place]

        return _PLACEHOLDER.sub(value_of, template).encode()

    return key_of
