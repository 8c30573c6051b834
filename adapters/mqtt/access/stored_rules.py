"""Stored rules for MQTT topics, indexed by user and client identifier.

There may be thousands of rules and a hundred thousand clients. Rules without a placeholder or an
address are compiled once, and a client checks only the rules for itself, its user, or everybody.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from adapters.mqtt.access.rule_filters import (
    Compiled,
    applies,
    has_placeholder,
    is_as_written,
    levels_for,
)
from adapters.mqtt.rule_types import EQ, MQTT_TOPIC
from gateway.auth.ports import EVERYBODY, Authorizer, Operation, Principal, Rule

_Whom: TypeAlias = tuple[str, str]  # (principal, client identifier), ``*`` for every one


class StoredRules:
    """The stored rules, indexed anew when they have changed. Loop only."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer
        self._revision = -1
        self._shared: dict[_Whom, list[Compiled]] = {}
        self._own: dict[_Whom, list[Rule]] = {}  # they name a host, or have placeholders

    def exact_denials(self) -> Iterable[str]:
        """Return the filters that rules deny to subscribe to as they are written."""
        return (
            rule.pattern
            for rule in self._mqtt_rules()
            if rule.pattern_kind == EQ
            and not rule.allow
            and rule.operation is not Operation.WRITE
        )

    def of_client(
        self, client_id: str, username: str | None, principal: Principal
    ) -> tuple[Sequence[Compiled], ...]:
        """Return the rules about one client, in no order."""
        if self._revision != self._authorizer.revision:
            self._index()
        if not (self._shared or self._own):
            return ()
        about = {
            (name, client)
            for name in (EVERYBODY, principal.name)
            for client in (EVERYBODY, client_id)
        }
        own = []
        for rule in (rule for whom in about for rule in self._own.get(whom, ())):
            levels = levels_for(rule.pattern, client_id, username, allows=rule.allow)
            if levels is not None and rule.host in {EVERYBODY, principal.host}:
                own.append(_compiled(rule, levels))
        shared = [self._shared[whom] for whom in about if whom in self._shared]
        return (*shared, own) if own else tuple(shared)

    def _mqtt_rules(self) -> Iterator[Rule]:
        return (
            rule for rule in self._authorizer.filter_rules if rule.resource_type == MQTT_TOPIC
        )

    def _index(self) -> None:
        self._revision = self._authorizer.revision
        self._shared, self._own = {}, {}
        for rule in self._mqtt_rules():
            whom = (rule.principal, rule.client)
            if rule.host != EVERYBODY or has_placeholder(rule.pattern):
                self._own.setdefault(whom, []).append(rule)
            else:
                compiled = _compiled(rule, tuple(rule.pattern.split("/")))
                self._shared.setdefault(whom, []).append(compiled)


def decision_of(
    rules: Sequence[Sequence[Compiled]],
    wanted: Sequence[str],
    *,
    to_subscribe: bool,
    is_shared: bool = False,
) -> bool | None:
    """Return what stored rules say: False where one denies, else True where one allows."""
    answer = None
    for some in rules:
        for rule in some:
            if applies(rule, wanted, to_subscribe=to_subscribe, is_shared=is_shared):
                if not rule.allows:
                    return False
                answer = True
    return answer


def _compiled(rule: Rule, levels: tuple[str, ...]) -> Compiled:
    return Compiled(
        rule.allow,
        rule.operation is not Operation.READ,
        rule.operation is not Operation.WRITE,
        levels,
        rule.pattern_kind == EQ and is_as_written(rule.pattern, levels),
    )
