"""Routes: which topic of the log keeps a message, and under which key. The first match wins."""

from typing import Final

from adapters.mqtt.config import MqttConfig
from adapters.mqtt.route_config import RouteConfig, check_routes, key_maker
from adapters.mqtt.subscriptions.filters import matches
from gateway.contributions import header_prefixes
from gateway.partition import Partition

CACHED_TOPICS_MAX: Final = 65_536  # of each of the two caches
CACHED_TOPIC_BYTES_MAX: Final = 1_024  # names above it are routed each time


BUILT_IN_PREFIXES: Final = header_prefixes()


class RoutedTopic:
    """Destination in the log of the messages of one MQTT topic.

    ``route`` is that of ``log_topic``: its ``default_qos`` holds there. ``topic_header``: the key
    is not the topic's name, so records bear the header ``mqtt.topic``. ``target`` belongs to the
    caller, who keeps there what it found for this topic (its partition). ``reserved_prefixes``:
    of names of headers that a user property cannot have.
    """

    __slots__ = ("key", "log_topic", "reserved_prefixes", "route", "target", "topic_header")

    def __init__(
        self,
        route: RouteConfig,
        key: bytes,
        *,
        topic_header: bool,
        reserved_prefixes: tuple[str, ...],
    ) -> None:
        self.route = route
        self.log_topic = route.topic
        self.key = key
        self.topic_header = topic_header
        self.reserved_prefixes = reserved_prefixes
        self.target: Partition | None = None


class _Route:
    """A route, ready for use."""

    __slots__ = ("for_qos_0", "for_rest", "key_of", "topic_filter")

    def __init__(self, config: RouteConfig) -> None:
        self.topic_filter = config.filter
        self.for_rest = config
        self.for_qos_0 = config if config.qos0_topic is None else _qos_0_route(config)
        self.key_of = key_maker(config)


class Routes:
    """Finds the route of a topic. Errors: ``ValueError`` for what ``check_routes`` refuses."""

    def __init__(
        self, config: MqttConfig, reserved_prefixes: tuple[str, ...] = BUILT_IN_PREFIXES
    ) -> None:
        configs = (*config.routes, config.default_route)
        check_routes(configs)
        self._routes = [_Route(one) for one in configs]
        self.are_plain = len(self._routes) == 1 and self._routes[0].key_of is str.encode
        """Whether all messages are in one topic of the log, under their topics' names."""
        self._reserved_prefixes = reserved_prefixes
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

    def log_topics(self) -> list[tuple[str, RouteConfig]]:
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
            route.for_rest if qos else route.for_qos_0,
            key,
            topic_header=key != topic,
            reserved_prefixes=self._reserved_prefixes,
        )
        if len(topic) <= CACHED_TOPIC_BYTES_MAX:
            cache = self._rest if qos else self._qos_0
            if len(cache) >= CACHED_TOPICS_MAX:
                cache.clear()
            cache[topic] = found
        return found


def _qos_0_route(route: RouteConfig) -> RouteConfig:
    return route.model_copy(
        update={"topic": route.qos0_topic, "qos0_topic": None, "default_qos": 0}
    )
