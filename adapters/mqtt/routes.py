"""Routes: which topic of the log keeps a message, and under which key. The first match wins."""

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from adapters.mqtt.errors import MqttError
from adapters.mqtt.subscriptions.filters import TOPIC_BYTES_MAX, check_filter, matches
from gateway.contributions import built_in_topics
from gateway.errors import InvalidTopicName
from gateway.model import check_topic_name

if TYPE_CHECKING:  # the config checks its routes here; targets are only kept
    from adapters.mqtt.config import MqttConfig, RouteConfig
    from gateway.partition import Partition

CACHED_TOPICS_MAX: Final = 65_536  # of each of the two caches
CACHED_TOPIC_BYTES_MAX: Final = 1_024  # names above it are routed each time

_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")

_KeyMaker = Callable[[str], bytes]


class RoutedTopic:
    """Where the messages of one MQTT topic go.

    ``route`` is that of ``log_topic``: its ``default_qos`` holds there. ``topic_header``: the key
    is not the topic's name, so records bear the header ``mqtt.topic``. ``target`` belongs to the
    caller, who keeps there what it found for this topic (its partition).
    """

    __slots__ = ("key", "log_topic", "route", "target", "topic_header")

    def __init__(self, route: "RouteConfig", key: bytes, *, topic_header: bool) -> None:
        self.route = route
        self.log_topic = route.topic
        self.key = key
        self.topic_header = topic_header
        self.target: Partition | None = None


class _Route:
    """A route, ready for use."""

    __slots__ = ("for_qos_0", "for_rest", "key_of", "topic_filter")

    def __init__(self, config: "RouteConfig") -> None:
        self.topic_filter = config.filter
        self.for_rest = config
        self.for_qos_0 = config if config.qos0_topic is None else _qos_0_route(config)
        self.key_of = _key_maker(config)


class Routes:
    """Finds the route of a topic. Errors: ``ValueError`` for what ``check_routes`` refuses."""

    def __init__(self, config: "MqttConfig") -> None:
        configs = (*config.routes, config.default_route)
        check_routes(configs)
        self._routes = [_Route(one) for one in configs]
        self.are_plain = len(self._routes) == 1 and self._routes[0].key_of is str.encode
        """Whether all messages are in one topic of the log, under their topics' names."""
        self._qos_0: dict[bytes, RoutedTopic] = {}
        self._rest: dict[bytes, RoutedTopic] = {}

    def find(self, topic: bytes, qos: int) -> RoutedTopic:
        """Return where a publish to ``topic`` (checked UTF-8, not of the server's own) goes."""
        found = (self._rest if qos else self._qos_0).get(topic)
        return self._find(topic, qos) if found is None else found

    def forget(self) -> None:
        """Forget what was found, with all targets: topics of the log have come or gone."""
        self._qos_0.clear()
        self._rest.clear()

    def log_topics(self) -> "list[tuple[str, RouteConfig]]":
        """Return the topics of the log that hold MQTT messages, each once, with its route.

        A topic of several routes has the most partitions that any of them asks for.
        """
        found: dict[str, RouteConfig] = {}
        for route in self._routes:
            for config in (route.for_rest, route.for_qos_0):
                known = found.get(config.topic)
                if known is None or known.partitions < config.partitions:
                    found[config.topic] = config
        return list(found.items())

    def _find(self, topic: bytes, qos: int) -> RoutedTopic:
        text = topic.decode()
        *special, last = self._routes  # which takes all, see check_routes
        route = next((one for one in special if matches(one.topic_filter, text)), last)
        key = route.key_of(text)
        found = RoutedTopic(
            route.for_rest if qos else route.for_qos_0, key, topic_header=key != topic
        )
        if len(topic) <= CACHED_TOPIC_BYTES_MAX:
            cache = self._rest if qos else self._qos_0
            if len(cache) >= CACHED_TOPICS_MAX:
                cache.clear()
            cache[topic] = found
        return found


def check_route(route: "RouteConfig") -> None:
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
    _key_maker(route)


def check_routes(routes: "Iterable[RouteConfig]") -> None:
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


def _qos_0_route(route: "RouteConfig") -> "RouteConfig":
    return route.model_copy(
        update={"topic": route.qos0_topic, "qos0_topic": None, "default_qos": 0}
    )


def _key_maker(route: "RouteConfig") -> _KeyMaker:
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
    places = [index for index, level in enumerate(levels) if level in ("+", "#")]
    for name in _PLACEHOLDER.findall(template):
        if name == "topic":
            continue
        if not name.isdecimal() or not 1 <= int(name) <= len(places):
            msg = (
                f"key {template!r}: {{{name}}} is none of {len(places)} wildcards or {{topic}}"
            )
            raise ValueError(msg)

    def key_of(topic: str) -> bytes:
        def value_of(placeholder: re.Match[str]) -> str:
            name = placeholder[1]
            if name == "topic":
                return topic
            place = places[int(name) - 1]
            values = topic.split("/")
            return "/".join(values[place:]) if levels[place] == "#" else values[place]

        return _PLACEHOLDER.sub(value_of, template).encode()

    return key_of
