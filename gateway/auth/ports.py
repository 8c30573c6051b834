"""Ports and model of authentication and authorization, for all protocols.

Standard library only. Rules speak of users, operations and resources, never of a protocol's own
commands; each adapter maps its commands to operations, and its resource names to the gateway's
(a topic outside of the default namespace is named ``namespace/name``). Adapters contribute further
types of resources, and how their rules select names.
"""

import operator
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, Final, NamedTuple, Protocol

from gateway.auth.scram import ScramCredential, ScramMechanism
from gateway.errors import InvalidRequest

ANONYMOUS: Final = "ANONYMOUS"
EVERYBODY: Final = "*"  # as a rule's principal, host or protocol
CLUSTER: Final = "kafka-cluster"  # the one name that a resource of type CLUSTER has
NAME_CHARS_MAX: Final = 255
RULE_BYTES_MAX: Final = 2_048  # of all names in a rule: PostgreSQL indexes no row above 2,704


class Principal(NamedTuple):
    """User of a connection. ``name`` is ``ANONYMOUS`` without a login."""

    name: str
    protocol: str
    host: str

    @property
    def is_anonymous(self) -> bool:
        """Whether the connection has not logged in."""
        return self.name == ANONYMOUS


class Operation(Enum):
    """Operation on a resource, named as in Kafka."""

    READ = "read"
    WRITE = "write"
    CREATE = "create"
    DELETE = "delete"
    ALTER = "alter"
    DESCRIBE = "describe"
    CLUSTER_ACTION = "cluster_action"
    DESCRIBE_CONFIGS = "describe_configs"
    ALTER_CONFIGS = "alter_configs"
    IDEMPOTENT_WRITE = "idempotent_write"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class PatternKind:
    """Kind of a rule's pattern: the way it selects names. Kinds of one name are equal.

    ``matches`` is called with the pattern and a name; a kind without it is for types of resources
    whose adapter decides. ``misuse`` is the error of a rule for a type that lacks the kind.
    """

    name: str
    matches: Callable[[str, str], bool] | None = field(default=None, compare=False, repr=False)
    misuse: str = field(default="", compare=False, repr=False)

    LITERAL: ClassVar["PatternKind"]
    PREFIX: ClassVar["PatternKind"]
    ANY: ClassVar["PatternKind"]

    def __hash__(self) -> int:
        return hash(self.name)


def _is_prefix(pattern: str, name: str) -> bool:
    return name.startswith(pattern)


def _is_any(_pattern: str, _name: str) -> bool:
    return True


PatternKind.LITERAL = PatternKind("literal", operator.eq)
PatternKind.PREFIX = PatternKind("prefix", _is_prefix)
PatternKind.ANY = PatternKind("any", _is_any)


@dataclass(frozen=True, slots=True)
class ResourceType:
    """Type of a guarded resource. Types of one name are equal.

    The kernel's own are the constants below; adapters contribute theirs. A type without
    ``patterns`` is unknown on this node: its adapter is off, and its rules are kept.
    """

    name: str
    patterns: tuple[PatternKind, ...] = field(default=(), compare=False, repr=False)
    """Kinds that its rules may have; the first is that of a rule which does not say."""
    words: Mapping[str, Operation] = field(default_factory=dict, compare=False, repr=False)
    """Its own words for operations, which commands and files may use."""
    plural: str = field(default="", compare=False, repr=False)
    """Words for its resources in errors; empty: its name."""
    misuse: str = field(default="", compare=False, repr=False)
    """Error of a rule with another kind of pattern; empty: the kinds are listed."""
    clients: str = field(default="", compare=False, repr=False)
    """Plural for clients whose identifiers rules may name; empty: they name none."""
    check: Callable[["Rule"], str | None] | None = field(
        default=None, compare=False, repr=False
    )
    """Further check of a rule: returns what is wrong, or None."""
    closes: bool = field(default=True, compare=False, repr=False)
    """Whether the kernel decides, and a rule closes its resource to those it does not allow.

    If not, the adapter decides, by ``Authorizer.filter_rules``.
    """
    is_cluster: bool = field(default=False, compare=False, repr=False)
    """Whether its operations are the administrators' where login is required."""
    has_namespaces: bool = field(default=False, compare=False, repr=False)
    """Whether ``/`` in a name separates a namespace, which no prefix without one allows."""

    TOPIC: ClassVar["ResourceType"]
    GROUP: ClassVar["ResourceType"]
    CLUSTER: ClassVar["ResourceType"]
    TRANSACTIONAL_ID: ClassVar["ResourceType"]
    EXCHANGE: ClassVar["ResourceType"]
    """Exchanges. AMQP's "configure" is to create and delete one; "read" is to bind to it."""

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def title(self) -> str:
        """Words for its resources."""
        return self.plural or self.name

    def pattern_for(self, name: str) -> PatternKind:
        """Return the kind of a rule that says none. The type is known."""
        return (
            PatternKind.ANY
            if not name and PatternKind.ANY in self.patterns
            else self.patterns[0]
        )


_ALL_KINDS: Final = (PatternKind.LITERAL, PatternKind.PREFIX, PatternKind.ANY)
ResourceType.TOPIC = ResourceType("topic", _ALL_KINDS, has_namespaces=True)
ResourceType.GROUP = ResourceType("group", _ALL_KINDS)
ResourceType.CLUSTER = ResourceType("cluster", _ALL_KINDS, is_cluster=True)
ResourceType.TRANSACTIONAL_ID = ResourceType("transactional_id", _ALL_KINDS)
ResourceType.EXCHANGE = ResourceType("exchange", _ALL_KINDS, has_namespaces=True)
KERNEL_TYPES: Final = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
    ResourceType.EXCHANGE,
)


class Rule(NamedTuple):
    """Rule that allows or denies ``principal`` an ``operation`` on the selected resources.

    ``principal``, ``protocol``, ``host`` and ``client`` are exact or ``*``. A rule that denies
    wins over every rule that allows.
    """

    principal: str
    operation: Operation
    resource_type: ResourceType
    pattern_kind: PatternKind
    pattern: str
    allow: bool = True
    protocol: str = EVERYBODY
    host: str = EVERYBODY
    client: str = EVERYBODY  # the identifier that a client says it has


def check_rule(rule: Rule) -> Rule:
    """Return ``rule`` if it is valid, else raise ``InvalidRequest``."""
    if rule.pattern_kind == PatternKind.ANY and rule.pattern:
        msg = f"a rule for any {rule.resource_type.name} names none, not {rule.pattern[:80]!r}"
        raise InvalidRequest(msg)
    if rule.pattern_kind != PatternKind.ANY and not rule.pattern:
        msg = f"a {rule.pattern_kind.name} rule needs a name"
        raise InvalidRequest(msg)
    names = (rule.principal, rule.protocol, rule.host, rule.pattern or EVERYBODY, rule.client)
    for text in names:
        if not 1 <= len(text) <= NAME_CHARS_MAX or "\0" in text:
            msg = f"{text[:80]!r} is not 1 to {NAME_CHARS_MAX} characters, none of them NUL"
            raise InvalidRequest(msg)
    if sum(len(text.encode("utf-8", "surrogatepass")) for text in names) > RULE_BYTES_MAX:
        msg = f"the names of a rule have more than {RULE_BYTES_MAX} bytes in all"
        raise InvalidRequest(msg)
    _check_type(rule)
    return rule


def _check_type(rule: Rule) -> None:
    kind, resource = rule.pattern_kind, rule.resource_type
    if not resource.patterns:
        wrong: str | None = f"resource type {resource.name!r} is not known here"
    elif kind not in resource.patterns:
        names = ", ".join(one.name for one in resource.patterns)
        wrong = (
            resource.misuse
            or kind.misuse
            or f"a rule for {resource.name} has one of the patterns {names}"
        )
    elif rule.client != EVERYBODY and not resource.clients:
        wrong = f"a rule for {resource.name} is for no single client identifier"
    else:
        wrong = resource.check(rule) if resource.check is not None else None
    if wrong is not None:
        raise InvalidRequest(wrong)


class Verdict(Enum):
    """Verdict of rules on a principal, an operation and a resource."""

    ALLOWED = "allowed"
    DENIED = "denied"
    CLOSED = "closed"  # rules select the resource, and none of them allows this
    SILENT = "silent"  # no rule selects the resource


class Authenticator(Protocol):
    """Port that verifies users and their credentials."""

    @property
    def required(self) -> bool:
        """Whether login is required (``auth.required``)."""
        ...

    @property
    def on_change(self) -> list[Callable[[], None]]:
        """Callbacks for changes of users, called before the next decision."""
        ...

    @property
    def after_change(self) -> list[Callable[[], Awaitable[None]]]:
        """Callbacks awaited after a change of users' access, before the change is answered."""
        ...

    @property
    def on_removed(self) -> list[Callable[[str], None]]:
        """Callbacks, called with the name of a principal whose connections are to be closed.

        The name is that of a removed user, or ``ANONYMOUS`` when login becomes required.
        """
        ...

    def is_known(self, name: str) -> bool:
        """Say whether a user of that name has a password."""
        ...

    def is_super_user(self, name: str) -> bool:
        """Say whether a user is allowed everything, regardless of rules."""
        ...

    async def authenticate_plain(self, username: str, password: str) -> str:
        """Return the principal's name if the password is right.

        Errors: ``Unauthenticated`` (wrong, or no such user, which take equally long),
        ``Overloaded`` (too many passwords are being checked at once).
        """
        ...

    async def scram_credential(
        self, username: str, mechanism: ScramMechanism
    ) -> ScramCredential:
        """Return the user's SCRAM credential; for an unknown user one that no password fits.

        The decoy has a salt that stays the same for a name, so that names cannot be probed.
        """
        ...


class Authorizer(Protocol):
    """Port that decides permissions, from memory, without waiting."""

    @property
    def revision(self) -> int:
        """Number that grows when an answer may have changed, so that sessions can cache answers.

        Users, access keys and rules share it.
        """
        ...

    def allows(
        self, principal: Principal, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        """Say whether ``principal`` may perform the operation on the resource."""
        ...

    def verdict(
        self,
        principal: Principal,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
        *,
        by_name: bool = False,
    ) -> Verdict:
        """Return the verdict of rules alone, for protocols with further sources of permission.

        ``by_name``: a rule for any resource allows nothing. Super users are no matter of rules.
        """
        ...

    def has_rule(self, resource_type: ResourceType, name: str) -> bool:
        """Say whether any rule selects the resource, for any principal."""
        ...

    def allows_by_default(self, principal: Principal) -> bool:
        """Say whether ``principal`` may access resources that no rule selects."""
        ...

    @property
    def filter_rules(self) -> Sequence[Rule]:
        """Rules for types of resources that their adapters decide; no other resource is affected.

        An adapter picks those of its own type.
        """
        ...

    @property
    def after_change(self) -> list[Callable[[], Awaitable[None]]]:
        """Callbacks awaited after each change of rules, before the change is answered."""
        ...

    def is_super_user(self, principal: Principal) -> bool:
        """Say whether a principal is allowed everything, regardless of rules."""
        ...
