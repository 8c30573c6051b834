"""Ports and model of authentication and authorization, for all protocols.

Standard library only. Rules speak of users, operations and resources, never of a protocol's own
commands; each adapter maps its commands to operations, and its resource names to the gateway's
(a topic outside of the default namespace is named ``namespace/name``). What MQTT clients call
topics is a resource of its own: many of those names are one topic of the log.
"""

from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import Final, NamedTuple, Protocol

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


class ResourceType(Enum):
    """Type of a guarded resource."""

    TOPIC = "topic"
    GROUP = "group"
    CLUSTER = "cluster"
    TRANSACTIONAL_ID = "transactional_id"
    MQTT_TOPIC = "mqtt_topic"  # READ is to subscribe, WRITE to publish


class PatternKind(Enum):
    """How a rule's pattern selects names."""

    LITERAL = "literal"
    PREFIX = "prefix"
    ANY = "any"
    FILTER = "filter"  # MQTT's topic filter, in which %c and %u are the client's own names
    EQ = "eq"  # the same, but as it is written: what it matches is another matter


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
    client: str = EVERYBODY  # the identifier that an MQTT client says it has


def check_rule(rule: Rule) -> Rule:
    """Return ``rule`` if it is valid, else raise ``InvalidRequest``."""
    if rule.pattern_kind is PatternKind.ANY and rule.pattern:
        msg = f"a rule for any {rule.resource_type.value} names none, not {rule.pattern[:80]!r}"
        raise InvalidRequest(msg)
    if rule.pattern_kind is not PatternKind.ANY and not rule.pattern:
        msg = f"a {rule.pattern_kind.value} rule needs a name"
        raise InvalidRequest(msg)
    names = (rule.principal, rule.protocol, rule.host, rule.pattern or EVERYBODY, rule.client)
    for text in names:
        if not 1 <= len(text) <= NAME_CHARS_MAX or "\0" in text:
            msg = f"{text[:80]!r} is not 1 to {NAME_CHARS_MAX} characters, none of them NUL"
            raise InvalidRequest(msg)
    if sum(len(text.encode("utf-8", "surrogatepass")) for text in names) > RULE_BYTES_MAX:
        msg = f"the names of a rule have more than {RULE_BYTES_MAX} bytes in all"
        raise InvalidRequest(msg)
    _check_filter_rule(rule)
    return rule


def _check_filter_rule(rule: Rule) -> None:
    is_filter = rule.pattern_kind in {PatternKind.FILTER, PatternKind.EQ}
    if is_filter is not (rule.resource_type is ResourceType.MQTT_TOPIC):
        msg = "a filter is for MQTT topics, and they take no other pattern"
    elif not is_filter:
        if rule.client == EVERYBODY:
            return
        msg = "a rule for one client identifier is for MQTT topics"
    elif rule.operation not in {Operation.READ, Operation.WRITE, Operation.ALL}:
        msg = f"{rule.operation.value}: MQTT clients subscribe (read) and publish (write)"
    elif rule.protocol != EVERYBODY:
        msg = "a rule for MQTT topics is for no other protocol, and names none"
    elif not _is_filter(rule.pattern):
        msg = f"{rule.pattern[:80]!r}: '+' stands for a whole level, '#' for all that are left"
    else:
        return
    raise InvalidRequest(msg)


def _is_filter(text: str) -> bool:
    *levels, last = text.split("/")
    return not any(
        "#" in level or ("+" in level and level != "+")
        for level in (*levels, "" if last == "#" else last)
    )


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
        """Rules for MQTT topics; they affect no other resource.

        Without any, what the adapter's own settings say holds.
        """
        ...

    @property
    def after_change(self) -> list[Callable[[], Awaitable[None]]]:
        """Callbacks awaited after each change of rules, before the change is answered."""
        ...

    def is_super_user(self, principal: Principal) -> bool:
        """Say whether a principal is allowed everything, regardless of rules."""
        ...
