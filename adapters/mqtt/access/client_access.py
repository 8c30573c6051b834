"""Rights to publish and subscribe: stored rules, the config's ``acl``, ``acl_default``.

A stored rule that denies comes first, so that a client can be denied at any time; then the first
rule of ``acl`` that matches; then a stored rule that allows; then ``acl_default``. The gateway's
``Authorizer`` may still refuse a client that they allow, where a rule of its own selects the topic
of the log: WRITE to publish, READ to subscribe. Where none of them decides (``acl_default`` is not
set), the ``Authorizer`` decides alone. Super users may do everything. Answers are kept per
connection until the authorizer's revision changes.

A subscription is a filter, and rules are filters too: an ``allow`` matches a filter that it covers
wholly, a ``deny`` matches any filter that has a topic in common with it. So no client reads a
denied topic through ``#``, and no message is checked on delivery: ``reading`` checks subscriptions
again when rules change.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from adapters.mqtt.access.rule_filters import (
    Compiled,
    applies,
    covers,
    is_as_written,
    levels_for,
    overlaps,
)
from adapters.mqtt.access.stored_rules import StoredRules, decision_of
from adapters.mqtt.config import MqttConfig, MqttRule
from adapters.mqtt.errors import MqttError, ReasonCode
from adapters.mqtt.packets.delayed_topics import DELAYED_PREFIX, parse_delayed
from adapters.mqtt.route_config import RouteConfig
from adapters.mqtt.subscriptions.filters import check_publish_topic
from gateway.auth.ports import ANONYMOUS, Authorizer, Operation, Principal, ResourceType
from gateway.errors import as_value

ANSWERS_MAX: Final = 512  # topics remembered per connection, of QoS 0 and of the rest each


def principal_of(username: str | None, host: str) -> Principal:
    """Return the gateway's principal of a client; None: no user name was asked for."""
    return Principal(username or ANONYMOUS, "mqtt", host)


class ClientAccess:
    """Rights of one client. Loop only; answers come from memory."""

    def __init__(
        self,
        access: "Access",
        client_id: str,
        username: str | None,
        principal: Principal,
        rules: Sequence[Compiled],
    ) -> None:
        """``rules``: those of the config about this client, first match first."""
        self._access = access
        self._client_id = client_id
        self._username = username
        self._principal = principal
        self._rules = rules
        self._stored: Sequence[Sequence[Compiled]] = ()
        self._is_super_user = False
        self._is_shut_out = False  # login is required since it came; its will is still to come
        self._has_rules = True
        self._answers: dict[bytes, MqttError | None] = {}
        self._answers_qos0: dict[bytes, MqttError | None] = {}
        self._revision = -1

    def publish_refusal(self, topic: bytes, qos: int) -> MqttError | None:
        """Return why the client may not publish to a topic, or None when it may."""
        revision = self._access.authorizer.revision
        if self._revision != revision:
            self._renew(revision)
        answers = self._answers if qos else self._answers_qos0
        try:
            return answers[topic]
        except KeyError:
            if len(answers) >= ANSWERS_MAX:
                answers.clear()
            refusal = answers[topic] = self._refusal(topic, qos)
            return refusal

    def rules_allow_all(self, topics: Sequence[bytes], qos: int) -> bool:
        """Return whether the rules allow all topics; ``may_write`` checks their topics of the log.

        Without rules about the client one check is enough for all. False if one is a topic of the
        server, such as ``$delayed/``: then ``publish_refusal`` decides on each. With rules each
        topic is checked together with its topic of the log, and ``may_write`` adds nothing.
        """
        revision = self._access.authorizer.revision
        if self._revision != revision:
            self._renew(revision)
        if any(topic.startswith(b"$") for topic in topics):
            return False
        if self._has_rules and not self._is_super_user:
            return all(self.publish_refusal(topic, qos) is None for topic in topics)
        if not self._is_super_user and self._access.default is False:
            return False
        slashes = max(topic.count(b"/") for topic in topics)
        return slashes < self._access.config.topic_levels_max

    def may_write(self, log_topics: Iterable[str]) -> bool:
        """Return whether the client may publish to names of these topics of the log.

        Call it after ``rules_allow_all``.
        """
        if self._has_rules and not self._is_super_user:
            return True
        return all(
            self._may(Operation.WRITE, name, answer=self._access.default) for name in log_topics
        )

    @property
    def revision(self) -> int:
        """Number of the rules; it grows when they change."""
        return self._access.authorizer.revision

    def may_subscribe(self, topic_filter: str, *, is_shared: bool = False) -> bool:
        """Say whether the client may subscribe to a checked filter (without its group)."""
        revision = self._access.authorizer.revision
        if self._revision != revision:
            self._renew(revision)
        answer = self._answer_of_rules(topic_filter, to_subscribe=True, is_shared=is_shared)
        if answer is False:
            return False
        names = log_topics(self._access.config, tuple(topic_filter.split("/")))
        if not names and answer is None:  # the server's own
            return self._access.authorizer.allows_by_default(self._principal)
        return all(self._may(Operation.READ, name, answer=answer) for name in names)

    def _renew(self, revision: int) -> None:
        """Rules have changed: forget answers."""
        access = self._access
        self._answers.clear()
        self._answers_qos0.clear()
        self._is_super_user = access.authorizer.is_super_user(self._principal)
        self._is_shut_out = (
            self._principal.is_anonymous
            and not access.authorizer.allows_by_default(self._principal)
        )
        self._stored = access.stored.of_client(self._client_id, self._username, self._principal)
        self._has_rules = bool(self._rules) or any(self._stored)
        self._revision = revision

    def _refusal(self, topic: bytes, qos: int) -> MqttError | None:
        try:
            if topic.startswith(DELAYED_PREFIX):  # whoever may publish to it may do so later
                _, topic = parse_delayed(topic)
            text = topic.decode()
            check_publish_topic(text, levels_max=self._access.config.topic_levels_max)
        except MqttError as error:
            return as_value(error)
        answer = self._answer_of_rules(text, to_subscribe=False)
        if (
            answer is not False
            and not self._is_shut_out
            and self._may(Operation.WRITE, self._access.log_topic(topic, qos), answer=answer)
        ):
            return None
        return MqttError(ReasonCode.NOT_AUTHORIZED, f"may not publish to {text[:80]!r}")

    def leaves_out(self, topic: Sequence[str]) -> bool:
        """Say whether a topic is denied by its exact name, whatever filter it matches."""
        revision = self._access.authorizer.revision
        if self._revision != revision:
            self._renew(revision)
        if self._is_super_user:
            return False
        stored = (rule for rules in self._stored for rule in rules)
        if any(
            _denies_exactly(rule) and applies(rule, topic, to_subscribe=True) for rule in stored
        ):
            return True
        for rule in self._rules:
            if applies(rule, topic, to_subscribe=True):
                return _denies_exactly(rule)
        return False

    def _answer_of_rules(
        self, name: str, *, to_subscribe: bool, is_shared: bool = False
    ) -> bool | None:
        """Return what the rules for MQTT topics say; None: nothing."""
        if self._is_super_user:
            return True
        if not self._has_rules:  # who has a million topics is asked a million times
            return self._access.default
        wanted = tuple(name.split("/"))
        stored = decision_of(
            self._stored, wanted, to_subscribe=to_subscribe, is_shared=is_shared
        )
        if stored is False:
            return False
        for rule in self._rules:
            if applies(rule, wanted, to_subscribe=to_subscribe, is_shared=is_shared):
                return rule.allows
        return stored or self._access.default

    def _may(self, operation: Operation, log_topic: str, *, answer: bool | None) -> bool:
        """Return whether a topic of the log is allowed, too.

        ``answer`` is True where rules for MQTT topics allow the operation explicitly: then only
        rules for the topic of the log can refuse it.
        """
        authorizer = self._access.authorizer
        if answer and not authorizer.has_rule(ResourceType.TOPIC, log_topic):
            return True
        return authorizer.allows(self._principal, operation, ResourceType.TOPIC, log_topic)


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
        self.stored = StoredRules(authorizer)
        self.log_topic = log_topic
        self.default = None if config.acl_default is None else config.acl_default == "allow"

    def of_client(
        self, client_id: str, username: str | None, principal: Principal
    ) -> ClientAccess:
        """Return the access of one client. ``username``: None if it was not asked for one."""
        rules = [
            compiled
            for rule in self.config.acl
            if rule.user in {"*", username} and rule.client in {"*", client_id}
            for compiled in [_compile(rule, client_id, username)]
            if compiled is not None
        ]
        return ClientAccess(self, client_id, username, principal, rules)


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


def _compile(rule: MqttRule, client_id: str, username: str | None) -> Compiled | None:
    allows = rule.effect == "allow"
    levels = levels_for(rule.filter, client_id, username, allows=allows)
    if levels is None:
        return None
    publishes = rule.action in {"publish", "all"}
    subscribes = rule.action in {"subscribe", "all"}
    is_exact = rule.match == "eq" and is_as_written(rule.filter, levels)
    return Compiled(allows, publishes, subscribes, levels, is_exact)


def _denies_exactly(rule: Compiled) -> bool:
    return rule.is_exact and not rule.allows
