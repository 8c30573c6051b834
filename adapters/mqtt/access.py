"""Who may publish and subscribe to what: the rules of the config, then the gateway's.

``acl`` decides first: the first rule that matches, else ``acl_default``. What it allows is asked
of the gateway's ``Authorizer``, whose resource is the log's topic by route: WRITE to publish,
READ to subscribe. Answers are kept per connection until the authorizer's revision changes.

A subscription is a filter, and rules are filters too: an ``allow`` matches what it covers
wholly, a ``deny`` matches whatever it has a topic in common with. So nobody reads through ``#``
what is denied to him, and no message is checked when it is delivered.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from adapters.mqtt.config import MqttConfig, MqttRule, RouteConfig
from adapters.mqtt.delayed import DELAYED_PREFIX, parse_delayed
from adapters.mqtt.errors import MqttError, ReasonCode
from adapters.mqtt.filters import check_publish_topic
from gateway.auth import Authorizer, Operation, Principal, ResourceType

ANSWERS_MAX: Final = 512  # topics remembered per connection, of QoS 0 and of the rest each

_PLACEHOLDER: Final = re.compile("%[cu]")
_WIDENING: Final = re.compile(r"[+#/\0]|^\$|^$")


class _Compiled(NamedTuple):
    """A rule as it is for one client; ``levels`` are those of its filter."""

    allows: bool
    publishes: bool
    subscribes: bool
    levels: tuple[str, ...]


class ClientAccess:
    """What one client may do. Loop only; answers come from memory."""

    def __init__(
        self, access: "Access", rules: Sequence[_Compiled], principal: Principal
    ) -> None:
        self._access = access
        self._rules = rules
        self._principal = principal
        self._answers: dict[bytes, MqttError | None] = {}
        self._answers_qos0: dict[bytes, MqttError | None] = {}
        self._revision = -1

    def publish_refusal(self, topic: bytes, qos: int) -> MqttError | None:
        """Return why the client may not publish to a topic, or None when it may."""
        revision = self._access.authorizer.revision
        if self._revision != revision:
            self._answers.clear()
            self._answers_qos0.clear()
            self._revision = revision
        answers = self._answers if qos else self._answers_qos0
        try:
            return answers[topic]
        except KeyError:
            if len(answers) >= ANSWERS_MAX:
                answers.clear()
            refusal = answers[topic] = self._refusal(topic, qos)
            return refusal

    def may_subscribe(self, topic_filter: str) -> bool:
        """Say whether the client may subscribe to a checked filter (without its group)."""
        wanted = tuple(topic_filter.split("/"))
        allowed = self._access.allows_by_default
        for rule in self._rules:
            if rule.subscribes and (covers if rule.allows else overlaps)(rule.levels, wanted):
                allowed = rule.allows
                break
        return allowed and all(
            self._is_authorized(Operation.READ, name)
            for name in log_topics(self._access.config, wanted)
        )

    def _refusal(self, topic: bytes, qos: int) -> MqttError | None:
        try:
            if topic.startswith(DELAYED_PREFIX):  # whoever may publish to it may do so later
                _, topic = parse_delayed(topic)
            text = topic.decode()
            check_publish_topic(text, levels_max=self._access.config.topic_levels_max)
        except MqttError as error:
            return error
        if self._may_publish(text) and self._is_authorized(
            Operation.WRITE, self._access.log_topic(topic, qos)
        ):
            return None
        return MqttError(ReasonCode.NOT_AUTHORIZED, f"may not publish to {text[:80]!r}")

    def _may_publish(self, topic: str) -> bool:
        levels = tuple(topic.split("/"))
        for rule in self._rules:
            if rule.publishes and covers(rule.levels, levels):
                return rule.allows
        return self._access.allows_by_default

    def _is_authorized(self, operation: Operation, log_topic: str) -> bool:
        return self._access.authorizer.allows(
            self._principal, operation, ResourceType.TOPIC, log_topic
        )


class Access:
    """The rules of the node. ``log_topic`` says where a message of a topic and QoS goes."""

    def __init__(
        self,
        config: MqttConfig,
        authorizer: Authorizer,
        log_topic: Callable[[bytes, int], str],
    ) -> None:
        self.config = config
        self.authorizer = authorizer
        self.log_topic = log_topic
        self.allows_by_default = config.acl_default == "allow"

    def of_client(
        self, client_id: str, username: str | None, principal: Principal
    ) -> ClientAccess:
        """Return what one client may do. ``username`` is None for who was not asked."""
        rules = [
            compiled
            for rule in self.config.acl
            if rule.user in {"*", username} and rule.client in {"*", client_id}
            for compiled in [_compile(rule, client_id, username)]
            if compiled is not None
        ]
        return ClientAccess(self, rules, principal)


def covers(rule: Sequence[str], wanted: Sequence[str]) -> bool:
    """Say whether all that ``wanted`` (a filter or a name) matches is matched by ``rule`` too.

    Both are levels. ``a/#`` covers ``a``; a wildcard in front covers no ``$`` (section 4.7.2).

    >>> covers(["a", "+"], ["a", "b"]), covers(["a", "+"], ["a", "#"])
    (True, False)
    """
    if wanted[0].startswith("$") and rule[0] in {"+", "#"}:
        return False
    for index, level in enumerate(rule):
        if level == "#":
            return True
        if index >= len(wanted) or wanted[index] == "#":
            return False
        if level not in ("+", wanted[index]):
            return False
    return len(rule) == len(wanted)


def overlaps(one: Sequence[str], other: Sequence[str]) -> bool:
    """Say whether there may be a topic that both filters match.

    >>> overlaps(["a", "+"], ["+", "b"]), overlaps(["a"], ["b", "#"])
    (True, False)
    """
    for here, there in ((one, other), (other, one)):
        if here[0] in {"+", "#"} and there[0].startswith("$"):
            return False
    for here_level, there_level in zip(one, other, strict=False):
        if "#" in (here_level, there_level):
            return True
        if "+" not in (here_level, there_level) and here_level != there_level:
            return False
    longer, shorter = (one, other) if len(one) > len(other) else (other, one)
    return len(longer) == len(shorter) or longer[len(shorter)] == "#"


def log_topics(config: MqttConfig, wanted: Sequence[str]) -> list[str]:
    """Return the topics of the log that a filter may read: of its routes, first match first."""
    names: list[str] = []
    for route in (*config.routes, config.default_route):
        levels = route.filter.split("/")
        if overlaps(levels, wanted):
            names += _names(route)
        if covers(levels, wanted):
            break
    return names


def _names(route: RouteConfig) -> list[str]:
    return [route.topic] if route.qos0_topic is None else [route.topic, route.qos0_topic]


def _compile(rule: MqttRule, client_id: str, username: str | None) -> _Compiled | None:
    """Put the client's own names into a rule's filter; None when it cannot be meant.

    A name with a wildcard, a ``/`` or a ``$`` in front would change what the filter matches, and
    nobody may choose that by his client identifier: such an ``allow`` matches nothing, and such
    a ``deny`` takes any name in that level's place.
    """
    names = {"%c": client_id, "%u": username or ""}
    levels = []
    for level in rule.filter.split("/"):
        used = [names[found] for found in _PLACEHOLDER.findall(level)]
        if not any(_WIDENING.search(name) for name in used):
            levels.append(_PLACEHOLDER.sub(lambda found: names[found[0]], level))
        elif rule.effect == "allow":
            return None
        else:
            levels.append("+")
    return _Compiled(
        rule.effect == "allow",
        rule.action in {"publish", "all"},
        rule.action in {"subscribe", "all"},
        tuple(levels),
    )
