"""Conversion between Kafka's ACL bindings and the gateway's rules.

    Kafka                              Rule
    principal User:ada, User:*         principal ada, *
    LITERAL name                       LITERAL
    LITERAL *                          ANY
    PREFIXED name                      PREFIX
    host 10.0.0.1, *                   host, as it is
    (nothing)                          protocol: * when created here; * and kafka are listed

A rule created through Kafka holds for every protocol, because all protocols share the topic.
Rules for MQTT topics are not resources of Kafka: they are not listed, and no filter matches them.
Filters match like ``ResourcePatternFilter`` and ``AccessControlEntryFilter`` of the Java client.
"""

from collections.abc import Iterator
from enum import IntEnum
from typing import Any, Final, NamedTuple

from adapters.kafka.access.authorization import OPERATION_CODES, RESOURCE_TYPE_CODES
from adapters.kafka.errors import ErrorCode, Refused
from adapters.kafka.session import Session
from gateway.auth.ports import CLUSTER, EVERYBODY, Operation, PatternKind, ResourceType, Rule
from gateway.auth.rules import RuleBook
from gateway.errors import PolicyViolation
from gateway.model import DEFAULT_NAMESPACE

ANY: Final = 1  # in a filter, for resource types, operations, permissions and patterns
WILDCARD: Final = "*"
_PROTOCOL: Final = "kafka"
_USER: Final = "User:"
_OPERATIONS: Final = {code: operation for operation, code in OPERATION_CODES.items()}
_RESOURCE_TYPES: Final = {code: kind for kind, code in RESOURCE_TYPE_CODES.items()}


class PatternType(IntEnum):
    """``PatternType`` of the Java client (KIP-290)."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """``AclPermissionType`` of the Java client."""

    ANY = 1
    DENY = 2
    ALLOW = 3


class AclBinding(NamedTuple):
    """One ACL, with the numbers and strings of the wire format."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class AclBindingFilter(NamedTuple):
    """Filter of ACLs; None and ANY match everything."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int


def rule_book(session: Session) -> RuleBook:
    """Return the book of rules.

    Errors: ``Refused`` when the gateway does not store the rules; ``PolicyViolation`` outside of
    the default namespace, because rules apply to the whole node.
    """
    if session.namespace != DEFAULT_NAMESPACE:
        msg = "rules are managed through a listener of the default namespace"
        raise PolicyViolation(msg)
    book = session.node.authorizer
    if not isinstance(book, RuleBook):
        msg = "the rules of this node are not kept by the gateway"
        raise Refused(ErrorCode.SECURITY_DISABLED, msg)
    return book


def to_filter(asked: Any) -> AclBindingFilter:  # noqa: ANN401 - a generated class
    """Return the filter of a DescribeAcls request or of one DeleteAcls filter.

    Error: ``Refused``, INVALID_REQUEST, for unknown numbers.
    """
    found = AclBindingFilter(
        asked.resource_type_filter,
        asked.resource_name_filter,
        asked.pattern_type_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )
    if (
        found.resource_type not in {ANY, *_RESOURCE_TYPES}
        or found.operation not in {ANY, *_OPERATIONS}
        or found.permission_type not in set(Permission)
        or found.pattern_type not in set(PatternType)
    ):
        raise Refused(ErrorCode.INVALID_REQUEST, "The filter holds an unknown element.")
    return found


def bindings(book: RuleBook) -> Iterator[tuple[Rule, AclBinding]]:
    """Yield the rules that apply to Kafka as ACLs, those of the config file first."""
    for rule in (*book.static_rules(), *book.stored_rules()):
        if (
            rule.protocol in {EVERYBODY, _PROTOCOL}
            and rule.resource_type in RESOURCE_TYPE_CODES
        ):
            yield rule, to_binding(rule)


def to_binding(rule: Rule) -> AclBinding:
    """Return the ACL that corresponds to a rule."""
    pattern_type, name = PatternType.LITERAL, rule.pattern
    if rule.resource_type == ResourceType.CLUSTER:
        name = CLUSTER  # there is one cluster, whatever the pattern
    elif rule.pattern_kind == PatternKind.ANY:
        name = WILDCARD
    elif rule.pattern_kind == PatternKind.PREFIX:
        pattern_type = PatternType.PREFIXED
    return AclBinding(
        RESOURCE_TYPE_CODES[rule.resource_type],
        name,
        pattern_type,
        _USER + rule.principal,
        rule.host,
        OPERATION_CODES[rule.operation],
        Permission.ALLOW if rule.allow else Permission.DENY,
    )


def to_rule(binding: AclBinding) -> Rule:
    """Return the rule that corresponds to an ACL. Error: ``Refused``, INVALID_REQUEST."""
    if not binding.principal.startswith(_USER) or binding.principal == _USER:
        raise _invalid(f"The principal {binding.principal[:80]!r} is not User:name.")
    if not binding.resource_name:
        raise _invalid("The resource name is empty.")
    kind = _pattern_kind(binding)
    return Rule(
        principal=binding.principal.removeprefix(_USER),
        operation=_operation(binding.operation),
        resource_type=_resource_type(binding),
        pattern_kind=kind,
        pattern="" if kind == PatternKind.ANY else binding.resource_name,
        allow=_is_allowed(binding.permission_type),
        host=binding.host,
    )


def matches(wanted: AclBindingFilter, binding: AclBinding) -> bool:
    """Return whether a filter matches an ACL."""
    return (
        wanted.resource_type in {ANY, binding.resource_type}
        and _names_match(wanted, binding)
        and wanted.principal in {None, binding.principal}
        and wanted.host in {None, binding.host}
        and wanted.operation in {ANY, binding.operation}
        and wanted.permission_type in {ANY, binding.permission_type}
    )


def _names_match(wanted: AclBindingFilter, binding: AclBinding) -> bool:
    exact = wanted.pattern_type in {PatternType.ANY, binding.pattern_type}
    if not exact and wanted.pattern_type != PatternType.MATCH:
        return False
    if wanted.resource_name is None:
        return True
    if exact or wanted.resource_name == binding.resource_name:
        return wanted.resource_name == binding.resource_name
    if binding.pattern_type == PatternType.PREFIXED:
        return wanted.resource_name.startswith(binding.resource_name)
    return binding.resource_name == WILDCARD


def _pattern_kind(binding: AclBinding) -> PatternKind:
    if binding.pattern_type == PatternType.PREFIXED:
        return PatternKind.PREFIX
    if binding.pattern_type != PatternType.LITERAL:
        raise _invalid(f"Invalid pattern type {binding.pattern_type}.")
    return PatternKind.ANY if binding.resource_name == WILDCARD else PatternKind.LITERAL


def _resource_type(binding: AclBinding) -> ResourceType:
    kind = _RESOURCE_TYPES.get(binding.resource_type)
    if kind is None:
        raise _invalid(f"Invalid resource type {binding.resource_type}.")
    if kind == ResourceType.CLUSTER and binding.resource_name != CLUSTER:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER}.")
    return kind


def _operation(code: int) -> Operation:
    operation = _OPERATIONS.get(code)
    if operation is None:
        raise _invalid(f"Invalid operation type {code}.")
    return operation


def _is_allowed(permission_type: int) -> bool:
    if permission_type not in {Permission.ALLOW, Permission.DENY}:
        raise _invalid(f"Invalid permission type {permission_type}.")
    return permission_type == Permission.ALLOW


def _invalid(message: str) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, message)
