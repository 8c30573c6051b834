"""Who somebody is and what they may do: one model for all protocols, and its two ports.

Standard library only. Rules speak of users, operations and resources, never of a protocol's own
commands; each adapter maps its commands to operations, and its resource names to the gateway's
(a topic outside of the default namespace is named ``namespace/name``).
"""

from enum import Enum
from typing import Final, NamedTuple, Protocol

from gateway.errors import InvalidRequest
from gateway.scram import ScramCredential, ScramMechanism

ANONYMOUS: Final = "ANONYMOUS"
EVERYBODY: Final = "*"  # as a rule's principal, host or protocol
CLUSTER: Final = "kafka-cluster"  # the one name that a resource of type CLUSTER has
NAME_CHARS_MAX: Final = 255


class Principal(NamedTuple):
    """Who a connection speaks for. ``name`` is ``ANONYMOUS`` where nobody was asked."""

    name: str
    protocol: str
    host: str

    @property
    def is_anonymous(self) -> bool:
        """Nobody has said who they are."""
        return self.name == ANONYMOUS


class Operation(Enum):
    """What is done to a resource; Kafka's words, for want of better ones."""

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
    """What can be guarded."""

    TOPIC = "topic"
    GROUP = "group"
    CLUSTER = "cluster"
    TRANSACTIONAL_ID = "transactional_id"


class PatternKind(Enum):
    """How a rule's pattern selects names. More kinds (with placeholders) may join these."""

    LITERAL = "literal"
    PREFIX = "prefix"
    ANY = "any"


class Rule(NamedTuple):
    """May, or may not, ``principal`` do ``operation`` to what the pattern selects.

    ``principal``, ``protocol`` and ``host`` are exact or ``*``. A rule that denies wins over
    every rule that allows.
    """

    principal: str
    operation: Operation
    resource_type: ResourceType
    pattern_kind: PatternKind
    pattern: str
    allow: bool = True
    protocol: str = EVERYBODY
    host: str = EVERYBODY


def check_rule(rule: Rule) -> Rule:
    """Return ``rule`` when it makes sense, else raise ``InvalidRequest``."""
    if rule.pattern_kind is PatternKind.ANY and rule.pattern:
        msg = f"a rule for any {rule.resource_type.value} names none, not {rule.pattern[:80]!r}"
        raise InvalidRequest(msg)
    if rule.pattern_kind is not PatternKind.ANY and not rule.pattern:
        msg = f"a {rule.pattern_kind.value} rule needs a name"
        raise InvalidRequest(msg)
    for text in (rule.principal, rule.protocol, rule.host, rule.pattern or EVERYBODY):
        if not 1 <= len(text) <= NAME_CHARS_MAX or "\0" in text:
            msg = f"{text[:80]!r} is not 1 to {NAME_CHARS_MAX} characters, none of them NUL"
            raise InvalidRequest(msg)
    return rule


class Authenticator(Protocol):
    """Finds out who somebody is."""

    @property
    def required(self) -> bool:
        """Users are configured, so nobody gets in without showing that they are one of them."""
        ...

    async def authenticate_plain(self, username: str, password: str) -> str:
        """Return the principal's name for a password that is right.

        Errors: ``Unauthenticated`` (wrong, or no such user, which take equally long),
        ``Overloaded`` (too many passwords are being checked at once).
        """
        ...

    async def scram_credential(
        self, username: str, mechanism: ScramMechanism
    ) -> ScramCredential:
        """Return what a SCRAM exchange needs; for an unknown user one that no proof fits.

        The decoy has a salt that stays the same for a name, so that names cannot be probed.
        """
        ...


class Authorizer(Protocol):
    """Says who may do what. Answers come from memory, without waiting."""

    @property
    def revision(self) -> int:
        """Grows whenever an answer may have changed, so that a session may keep answers."""
        ...

    def allows(
        self, principal: Principal, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        """Say whether ``principal`` may do that to the resource of that name."""
        ...
