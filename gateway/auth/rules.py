"""Who may do what: rules from the config file and the metadata store, decided from memory.

A rule that denies wins over every rule that allows; what no rule allows is denied; without any
rule everything is allowed to whoever was let in. Super users may do everything, whatever rules
say. Rules for MQTT topics are kept here and decided by the adapter, which knows filters; they are
no rules for anything else.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from gateway.auth.ports import (
    EVERYBODY,
    Authenticator,
    Operation,
    PatternKind,
    Principal,
    ResourceType,
    Rule,
    check_rule,
)
from gateway.config.settings import AuthRule
from gateway.errors import Overloaded
from gateway.metadata.changes import Changes
from gateway.metadata.store import MetadataStore

RULES_MAX: Final = 10_000
ANSWERS_MAX: Final = 10_000  # remembered; above it, all are forgotten

# Who may do the one may do the other; denying goes by the operation's own name only (KIP-11).
_IMPLIED_BY: Final[Mapping[Operation, frozenset[Operation]]] = {
    Operation.DESCRIBE: frozenset(
        {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}


class RuleBook:
    """An ``Authorizer`` over static rules and those of the metadata store. Loop only."""

    def __init__(
        self,
        metadata: MetadataStore,
        authenticator: Authenticator,
        *,
        static_rules: Iterable[AuthRule] = (),
        super_users: Collection[str] = (),
    ) -> None:
        """Errors: ``InvalidRequest`` for a static rule that makes no sense."""
        self.revision = 0
        self.filter_rules: Sequence[Rule] = ()
        self.after_change: list[Callable[[], Awaitable[None]]] = []
        self._metadata = metadata
        self._authenticator = authenticator
        self._static = [parse_rule(rule) for rule in static_rules]
        self._super_users = frozenset(super_users)
        self._stored: list[Rule] = []
        self._by_type: dict[ResourceType, list[Rule]] = {}
        self._answers: dict[tuple[Principal, Operation, ResourceType, str], bool] = {}
        self._changes = Changes()
        self._adopt([])

    async def load(self) -> None:
        """Read the stored rules; once, before anything else is asked."""
        self._adopt(await self._metadata.rules())

    async def close(self) -> None:
        """Wait for changes that are on their way."""
        await self._changes.close()

    def stored_rules(self) -> Sequence[Rule]:
        """Return the rules of the metadata store, oldest first."""
        return self._stored

    def static_rules(self) -> Sequence[Rule]:
        """Return the rules of the config file."""
        return self._static

    async def add_rules(self, rules: Sequence[Rule]) -> None:
        """Store rules. Errors: ``InvalidRequest``, ``Overloaded``, ``StorageUnavailable``."""
        checked = [check_rule(rule) for rule in rules]
        await self._changes.make(self._add(checked))

    async def delete_rules(self, rules: Sequence[Rule]) -> None:
        """Remove rules from the store; those of the config file stay."""
        await self._changes.make(self._delete(rules))

    def allows(
        self, principal: Principal, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        """See ``Authorizer``."""
        if not self._by_type:
            return not principal.is_anonymous or not self._authenticator.required
        question = (principal, operation, resource_type, name)
        answer = self._answers.get(question)
        if answer is None:
            if len(self._answers) >= ANSWERS_MAX:
                self._answers.clear()
            answer = self.is_super_user(principal) or decide(
                self._by_type, principal, operation, resource_type, name
            )
            self._answers[question] = answer
        return answer

    def is_super_user(self, principal: Principal) -> bool:
        """See ``Authorizer``."""
        return principal.name in self._super_users

    async def _add(self, rules: Sequence[Rule]) -> None:
        if len(self._stored) + len(rules) > RULES_MAX:
            msg = f"there would be more than {RULES_MAX} rules"
            raise Overloaded(msg)
        await self._metadata.add_rules(rules)
        await self._change([*dict.fromkeys([*self._stored, *rules])])

    async def _delete(self, rules: Sequence[Rule]) -> None:
        await self._metadata.delete_rules(rules)
        gone = set(rules)
        await self._change([rule for rule in self._stored if rule not in gone])

    async def _change(self, stored: list[Rule]) -> None:
        self._adopt(stored)
        for settle in self.after_change:
            await settle()

    def _adopt(self, stored: list[Rule]) -> None:
        self._stored = stored
        self._by_type = {}
        filter_rules = []
        for rule in [*self._static, *stored]:
            if rule.resource_type is ResourceType.MQTT_TOPIC:
                filter_rules.append(rule)
            else:
                self._by_type.setdefault(rule.resource_type, []).append(rule)
        self.filter_rules = filter_rules
        self._answers.clear()
        self.revision += 1


def decide(
    rules: Mapping[ResourceType, Sequence[Rule]],
    principal: Principal,
    operation: Operation,
    resource_type: ResourceType,
    name: str,
) -> bool:
    """Return what ``rules`` say: denied, else allowed, else no."""
    matching = [
        rule
        for rule in rules.get(resource_type, ())
        if is_about(rule, principal) and selects(rule, name)
    ]
    if any(
        not rule.allow and rule.operation in {operation, Operation.ALL} for rule in matching
    ):
        return False
    enough = {operation, Operation.ALL} | _IMPLIED_BY.get(operation, frozenset())
    if any(rule.allow and rule.operation in enough for rule in matching):
        return True
    # Whoever may write to some topic may do so idempotently (KIP-679).
    return operation is Operation.IDEMPOTENT_WRITE and any(
        rule.allow and rule.operation in {Operation.WRITE, Operation.ALL}
        for rule in rules.get(ResourceType.TOPIC, ())
        if is_about(rule, principal)
    )


def is_about(rule: Rule, principal: Principal) -> bool:
    """Say whether a rule is about somebody."""
    return (
        rule.principal in {EVERYBODY, principal.name}
        and rule.protocol in {EVERYBODY, principal.protocol}
        and rule.host in {EVERYBODY, principal.host}
    )


def selects(rule: Rule, name: str) -> bool:
    """Say whether a rule's pattern selects a name."""
    if rule.pattern_kind is PatternKind.LITERAL:
        return rule.pattern == name
    if rule.pattern_kind is PatternKind.PREFIX:
        return name.startswith(rule.pattern)
    return rule.pattern_kind is PatternKind.ANY


def parse_rule(config: AuthRule) -> Rule:
    """Return the rule that a table `[[auth.rules]]` means. Errors: ``InvalidRequest``."""
    return check_rule(
        Rule(
            principal=config.principal,
            operation=Operation(config.operation),
            resource_type=ResourceType(config.resource),
            pattern_kind=PatternKind(config.pattern),
            pattern=config.name,
            allow=config.effect == "allow",
            protocol=config.protocol,
        )
    )
