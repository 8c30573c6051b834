"""Authorization by rules of the config file and the metadata store, decided from memory.

The table is in docs/adr/0014. A rule that denies wins over every rule that allows; what rules
select and none allows is denied; what no rule selects is allowed where login is not required, and
elsewhere as ``auth.default`` says. Super users may do everything, whatever rules say. Rules for
types that adapters decide are kept here, and are no rules for anything else; those of an adapter
that is off are kept without effect.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import structlog

from gateway.auth.ports import (
    EVERYBODY,
    Authenticator,
    Operation,
    PatternKind,
    Principal,
    ResourceType,
    Rule,
    Verdict,
    check_rule,
)
from gateway.auth.resource_types import ResourceTypes
from gateway.auth.rule_words import to_rule
from gateway.config.auth import AuthRule
from gateway.errors import Overloaded
from gateway.metadata.change_model import ChangeKind
from gateway.metadata.changes import Changes
from gateway.metadata.store import MetadataStore

RULES_MAX: Final = 10_000
ANSWERS_MAX: Final = 10_000  # remembered; above it, all are forgotten
_NO_DEFAULT: Final = "deny"  # in a directory that is new, unless the config says otherwise

log = structlog.get_logger()

_Question: TypeAlias = tuple[Principal, Operation, ResourceType, str]

# Who may do the one may do the other; denying goes by the operation's own name only (KIP-11).
_IMPLIED_BY: Final[Mapping[Operation, frozenset[Operation]]] = {
    Operation.DESCRIBE: frozenset(
        {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}


class RuleBook:
    """``Authorizer`` over the rules of the config file and the metadata store. Loop only."""

    def __init__(
        self,
        metadata: MetadataStore,
        authenticator: Authenticator,
        *,
        static_rules: Iterable[AuthRule] = (),
        super_users: Collection[str] = (),
        default: Literal["allow", "deny"] | None = None,
        types: ResourceTypes | None = None,
    ) -> None:
        """``default``: the config's ``auth.default``, None where it is not set.

        ``types``: resource types of the node; without them, those of built-in adapters.

        Errors: ``InvalidRequest`` for a static rule that makes no sense.
        """
        self.revision = 0
        self.filter_rules: Sequence[Rule] = ()
        self.after_change: list[Callable[[], Awaitable[None]]] = []
        self._metadata = metadata
        self._authenticator = authenticator
        self.types = types or ResourceTypes()
        self._static = [parse_rule(rule, self.types) for rule in static_rules]
        self._super_users = frozenset(super_users)
        self._stored: list[Rule] = []
        self._by_type: dict[ResourceType, list[Rule]] = {}
        self._answers: dict[_Question, bool] = {}
        self._verdicts: dict[tuple[_Question, bool], Verdict] = {}
        self._selected: dict[tuple[ResourceType, str], bool] = {}
        self._is_open = False  # nothing is asked of anybody: saves 100 ns a question
        self._default = default
        self._allows_by_default = default == "allow"
        self._changes = Changes(metadata.feed)
        self._adopt([])
        authenticator.on_change.append(self.forget_answers)
        authenticator.after_change.append(self._settle)

    async def load(self) -> None:
        """Load the stored rules; once, before any other call."""
        self._adopt(await self._load_rules())
        self._warn_of_unknown()
        self._changes.follow(ChangeKind.RULE, self._reload)
        if self._default is None:
            stored = (await self._metadata.access_settings()).default or _NO_DEFAULT
            has_static = any(rule.resource_type.closes for rule in self._static)
            self._allows_by_default = stored == "allow" and not has_static
            if self._allows_by_default:
                log.warning(
                    "auth.default is not set: what no rule is about is allowed to every user, "
                    "as before; set it to allow or deny"
                )
        self.forget_answers()

    async def _load_rules(self) -> list[Rule]:
        return [self.types.resolve(rule) for rule in await self._metadata.rules()]

    async def _reload(self, _keys: frozenset[str] | None) -> None:
        """See ``gateway.metadata.feed.Reload``."""
        stored = await self._load_rules()
        if stored != self._stored:
            await self._change(stored)

    def _warn_of_unknown(self) -> None:
        unknown = [
            one.resource_type.name for one in self._stored if not one.resource_type.patterns
        ]
        if unknown:
            log.warning(
                "rules of adapters that are off are kept, without effect",
                rules=len(unknown),
                resources=", ".join(sorted(set(unknown))),
            )

    async def close(self) -> None:
        """Wait for running changes."""
        await self._changes.close()

    def stored_rules(self) -> Sequence[Rule]:
        """Return the rules of the metadata store, oldest first."""
        return self._stored

    def static_rules(self) -> Sequence[Rule]:
        """Return the rules of the config file."""
        return self._static

    async def add_rules(self, rules: Sequence[Rule]) -> None:
        """Store rules. Errors: ``InvalidRequest``, ``Overloaded``, ``StorageUnavailable``."""
        checked = [check_rule(self.types.resolve(rule)) for rule in rules]
        await self._changes.make(self._add, checked)

    async def delete_rules(self, rules: Sequence[Rule]) -> None:
        """Remove rules from the store; rules of the config file stay."""
        await self._changes.make(self._delete, rules)

    async def replace_static(self, rules: Iterable[AuthRule]) -> None:
        """Replace the rules of the config file. Errors: ``InvalidRequest``."""
        static = [parse_rule(rule, self.types) for rule in rules]
        await self._changes.make(self._replace_static, static)

    async def _replace_static(self, static: list[Rule]) -> None:
        self._static = static
        await self._change(self._stored)

    def allows(
        self, principal: Principal, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        """See ``Authorizer``."""
        if self._is_open:
            return True
        question = (principal, operation, resource_type, name)
        answer = self._answers.get(question)
        if answer is None:
            if len(self._answers) >= ANSWERS_MAX:
                self._answers.clear()
            answer = self._answers[question] = self._decide(question)
        return answer

    def verdict(
        self,
        principal: Principal,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
        *,
        by_name: bool = False,
    ) -> Verdict:
        """See ``Authorizer``."""
        question = (principal, operation, resource_type, name)
        verdict = self._verdicts.get((question, by_name))
        if verdict is None:
            if len(self._verdicts) >= ANSWERS_MAX:
                self._verdicts.clear()
            verdict = decide(self._by_type, *question, by_name=by_name)
            self._verdicts[question, by_name] = verdict
        return verdict

    def has_rule(self, resource_type: ResourceType, name: str) -> bool:
        """See ``Authorizer``."""
        selected = self._selected.get((resource_type, name))
        if selected is None:
            if len(self._selected) >= ANSWERS_MAX:
                self._selected.clear()
            rules = self._by_type.get(resource_type, ())
            selected = any(selects(rule, name) for rule in rules)
            self._selected[resource_type, name] = selected
        return selected

    def is_super_user(self, principal: Principal) -> bool:
        """See ``Authorizer``."""
        return principal.name in self._super_users or self._authenticator.is_super_user(
            principal.name
        )

    def allows_by_default(self, principal: Principal) -> bool:
        """See ``Authorizer``."""
        if not self._authenticator.required:
            return True
        return self._allows_by_default and not principal.is_anonymous

    def forget_answers(self) -> None:
        """Drop cached answers after users, keys or rules have changed."""
        self._answers.clear()
        self._verdicts.clear()
        self._selected.clear()
        self._is_open = not (self._by_type or self._authenticator.required)
        self.revision += 1

    def _decide(self, question: _Question) -> bool:
        principal = question[0]
        if principal.is_anonymous and self._authenticator.required:
            return False
        if self.is_super_user(principal):
            return True
        verdict = decide(self._by_type, *question)
        if verdict in {Verdict.ALLOWED, Verdict.DENIED}:
            return verdict is Verdict.ALLOWED
        return self._decide_silent(question, is_closed=verdict is Verdict.CLOSED)

    def _decide_silent(self, question: _Question, *, is_closed: bool) -> bool:
        """Return the decision where no rule applies."""
        principal, operation, resource_type, _ = question
        if operation is Operation.IDEMPOTENT_WRITE:
            # Whoever may write to some topic may do so idempotently (KIP-679).
            return self.allows_by_default(principal) or _writes_somewhere(
                self._by_type.get(ResourceType.TOPIC, ()), principal
            )
        if is_closed or (resource_type.is_cluster and self._authenticator.required):
            return False  # operations of the cluster are the administrators'
        return self.allows_by_default(principal)

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
        await self._settle()

    async def _settle(self) -> None:
        for settle in self.after_change:
            await settle()

    def _adopt(self, stored: list[Rule]) -> None:
        self._stored = stored
        self._by_type = {}
        filter_rules = []
        for rule in [*self._static, *stored]:
            resource = rule.resource_type
            if not resource.patterns:
                continue  # of an adapter that is off
            if resource.closes:
                self._by_type.setdefault(resource, []).append(rule)
            else:
                filter_rules.append(rule)
        self.filter_rules = filter_rules
        self.forget_answers()


def decide(
    rules: Mapping[ResourceType, Sequence[Rule]],
    principal: Principal,
    operation: Operation,
    resource_type: ResourceType,
    name: str,
    *,
    by_name: bool = False,
) -> Verdict:
    """Return the verdict of ``rules``. ``by_name``: a rule for any resource allows nothing."""
    selecting = [rule for rule in rules.get(resource_type, ()) if selects(rule, name)]
    matching = [rule for rule in selecting if is_about(rule, principal)]
    if any(
        not rule.allow and rule.operation in {operation, Operation.ALL} for rule in matching
    ):
        return Verdict.DENIED
    enough = {operation, Operation.ALL} | _IMPLIED_BY.get(operation, frozenset())
    if any(
        rule.allow
        and rule.operation in enough
        and not (by_name and rule.pattern_kind == PatternKind.ANY)
        and not _reaches_elsewhere(rule, name)
        for rule in matching
    ):
        return Verdict.ALLOWED
    return Verdict.CLOSED if selecting else Verdict.SILENT


def _reaches_elsewhere(rule: Rule, name: str) -> bool:
    """Say whether a prefix without a namespace matched a topic in some namespace.

    Such a rule closes and denies there, and allows nothing. (Names of groups may have a ``/``.)
    """
    return (
        "/" in name
        and rule.resource_type.has_namespaces
        and rule.pattern_kind == PatternKind.PREFIX
        and "/" not in rule.pattern
    )


def _writes_somewhere(topic_rules: Sequence[Rule], principal: Principal) -> bool:
    return any(
        rule.allow and rule.operation in {Operation.WRITE, Operation.ALL}
        for rule in topic_rules
        if is_about(rule, principal)
    )


def is_about(rule: Rule, principal: Principal) -> bool:
    """Say whether a rule applies to a principal."""
    return (
        rule.principal in {EVERYBODY, principal.name}
        and rule.protocol in {EVERYBODY, principal.protocol}
        and rule.host in {EVERYBODY, principal.host}
    )


def selects(rule: Rule, name: str) -> bool:
    """Say whether a rule's pattern selects a name."""
    matches = rule.pattern_kind.matches
    return matches is not None and matches(rule.pattern, name)


def parse_rule(config: AuthRule, types: ResourceTypes | None = None) -> Rule:
    """Return the rule of a table `[[auth.rules]]`. Errors: ``InvalidRequest``."""
    return to_rule(config, types or ResourceTypes())
