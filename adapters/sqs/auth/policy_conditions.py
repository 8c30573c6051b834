"""Conditions of policy statements: tests of a request's context. Pure.

Every test of a condition has to pass. A test passes if one of its values matches or, for an
operator with Not, none of them. A key that the request does not have, as ``aws:SourceArn``, which
only AWS services send, fails its test, except for operators with Not, ``IfExists``,
``ForAllValues`` and Null. Operators and keys that the gateway cannot evaluate are refused.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_elements_condition.html
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_elements_condition_operators.html
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from operator import eq, ge, gt, le, lt
from typing import Any, Final, NamedTuple

from adapters.sqs.auth.policy_elements import invalid, pattern, unsupported
from adapters.sqs.call import Identity

TESTS_MAX: Final = 100  # of one condition; a policy's bytes allow no more to matter

Matches = Callable[[str], bool]
_Read = Callable[["RequestContext"], str]


class RequestContext(NamedTuple):
    """The facts that conditions test: the caller, the time, and whether the listener has TLS."""

    identity: Identity
    now_unix_ms: int
    is_tls: bool = False


class ConditionTest(NamedTuple):
    """One key of a condition. ``matches`` is None for the operator Null.

    ``if_absent`` is the result for a request without the key.
    """

    key: str
    matches: Matches | None
    is_negated: bool
    if_absent: bool


def holds(condition: Sequence[ConditionTest], context: RequestContext, *, allows: bool) -> bool:
    """Return whether a condition is met, for a statement that allows or denies.

    An anonymous caller fails tests of the caller in an Allow and passes them in a Deny: leaving out
    the signature gains nothing.
    """
    for test in condition:
        if context.identity.principal.is_anonymous and test.key in _OF_CALLER:
            if allows:
                return False
        elif not _holds(test, context):
            return False
    return True


def _holds(test: ConditionTest, context: RequestContext) -> bool:
    read = _KNOWN.get(test.key)
    if read is None:
        return test.if_absent
    if test.matches is None:
        return not test.if_absent
    return test.matches(read(context)) is not test.is_negated


# --- keys of a request's context


def _arn(context: RequestContext) -> str:
    return f"arn:aws:iam::{context.identity.account}:user/{context.identity.principal.name}"


def _now(context: RequestContext) -> str:
    return datetime.fromtimestamp(context.now_unix_ms // 1_000, UTC).strftime(
        "%Y-%m-%dT%H:%M:%SZ"
    )


_OF_CALLER: Final[Mapping[str, _Read]] = {
    "aws:principalaccount": lambda context: context.identity.account,
    "aws:principalarn": _arn,
    "aws:principaltype": lambda _: "User",
    "aws:username": lambda context: context.identity.principal.name,
}
_KNOWN: Final[Mapping[str, _Read]] = {
    **_OF_CALLER,
    "aws:currenttime": _now,
    "aws:epochtime": lambda context: str(context.now_unix_ms // 1_000),
    "aws:principalisawsservice": lambda _: "false",
    "aws:requestedregion": lambda context: context.identity.region,
    "aws:securetransport": lambda context: "true" if context.is_tls else "false",
    "aws:sourceip": lambda context: context.identity.principal.host,
    "aws:viaawsservice": lambda _: "false",
}
# Keys that no request has: they belong to AWS services, organizations, networks or sessions.
_ABSENT: Final = frozenset(
    {
        "aws:calledvia",
        "aws:calledviafirst",
        "aws:calledvialast",
        "aws:federatedprovider",
        "aws:multifactorauthage",
        "aws:multifactorauthpresent",
        "aws:principalorgid",
        "aws:principalorgpaths",
        "aws:principalservicename",
        "aws:principalservicenameslist",
        "aws:sourceaccount",
        "aws:sourcearn",
        "aws:sourceidentity",
        "aws:sourceorgid",
        "aws:sourceorgpaths",
        "aws:sourcevpc",
        "aws:sourcevpce",
        "aws:tokenissuetime",
        "aws:vpcsourceip",
    }
)
_ABSENT_PREFIX: Final = "aws:principaltag/"  # users here have no tags

# --- operators


def _texts_equal(values: Sequence[str]) -> Matches:
    return frozenset(values).__contains__


def _texts_equal_in_any_case(values: Sequence[str]) -> Matches:
    wanted = frozenset(value.lower() for value in values)
    return lambda found: found.lower() in wanted


def _texts_alike(values: Sequence[str]) -> Matches:
    wanted = pattern(values, re.DOTALL)
    return lambda found: wanted.fullmatch(found) is not None


def _arns_alike(values: Sequence[str]) -> Matches:
    """Match part by part: a star does not match a colon, except in the last part."""
    wanted = [[pattern([part]) for part in _arn_parts(value)] for value in values]

    def matches(found: str) -> bool:
        parts = _arn_parts(found)
        return any(
            len(parts) == len(patterns)
            and all(one.fullmatch(part) for one, part in zip(patterns, parts, strict=True))
            for patterns in wanted
        )

    return matches


def _arn_parts(arn: str) -> list[str]:
    return ["*"] * 6 if arn == "*" else arn.split(":", 5)


def _booleans_equal(values: Sequence[str]) -> Matches:
    if not {value.lower() for value in values} <= {"true", "false"}:
        raise invalid("A condition's value is not true or false.")
    return _texts_equal_in_any_case(values)


def _addresses_within(values: Sequence[str]) -> Matches:
    networks: list[IPv4Network | IPv6Network] = []
    for value in values:
        try:
            networks.append(ip_network(value, strict=False))
        except ValueError:
            raise invalid("A condition's value is not an IP address or a CIDR.") from None

    def matches(found: str) -> bool:
        try:
            address = ip_address(found)
        except ValueError:
            return False
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in networks)

    return matches


def _compared(
    parse: Callable[[str], Decimal | None], compare: Callable[[Decimal, Decimal], bool]
) -> Callable[[Sequence[str]], Matches]:
    """Return an operator that compares the request's value with each of its own."""

    def operator(values: Sequence[str]) -> Matches:
        wanted = []
        for value in values:
            parsed = parse(value)
            if parsed is None:
                raise invalid("A condition's value is not of the kind that its operator has.")
            wanted.append(parsed)

        def matches(text: str) -> bool:
            found = parse(text)
            return found is not None and any(compare(found, one) for one in wanted)

        return matches

    return operator


def _parse_number(text: str) -> Decimal | None:
    with suppress(InvalidOperation):
        number = Decimal(text)
        return number if number.is_finite() else None
    return None


def _parse_date(text: str) -> Decimal | None:
    """Return the unix time in seconds of an ISO 8601 date, or of a number of seconds."""
    with suppress(ValueError, OverflowError):
        date = datetime.fromisoformat(text)
        return Decimal((date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp())
    return _parse_number(text)


# By name in lower case: the comparison, and whether the operator negates it.
_COMPARISONS: Final = {
    "equals": (eq, False),
    "notequals": (eq, True),
    "lessthan": (lt, False),
    "lessthanequals": (le, False),
    "greaterthan": (gt, False),
    "greaterthanequals": (ge, False),
}
_OPERATORS: Final[Mapping[str, tuple[Callable[[Sequence[str]], Matches], bool]]] = {
    "stringequals": (_texts_equal, False),
    "stringnotequals": (_texts_equal, True),
    "stringequalsignorecase": (_texts_equal_in_any_case, False),
    "stringnotequalsignorecase": (_texts_equal_in_any_case, True),
    "stringlike": (_texts_alike, False),
    "stringnotlike": (_texts_alike, True),
    "arnequals": (_arns_alike, False),
    "arnnotequals": (_arns_alike, True),
    "arnlike": (_arns_alike, False),
    "arnnotlike": (_arns_alike, True),
    "bool": (_booleans_equal, False),
    "ipaddress": (_addresses_within, False),
    "notipaddress": (_addresses_within, True),
} | {
    kind + name: (_compared(parse, compare), is_negated)
    for kind, parse in (("numeric", _parse_number), ("date", _parse_date))
    for name, (compare, is_negated) in _COMPARISONS.items()
}
_NULL: Final = "null"
_IF_EXISTS: Final = "ifexists"
_FOR_ALL: Final = "forallvalues"
_FOR_ANY: Final = "foranyvalue"

# --- reading


def parse_condition(condition: object) -> tuple[ConditionTest, ...]:
    """Return the tests of a statement's Condition. Errors: as ``policy.parse_policy``."""
    if condition is None:
        return ()
    if not isinstance(condition, dict):
        raise invalid("Condition is not a map.")
    tests: list[ConditionTest] = []
    for operator, keys in condition.items():
        if not isinstance(keys, dict):
            raise invalid("An operator of a condition has no map of keys.")
        if not keys:  # otherwise the statement would apply without a condition
            raise unsupported(f"The operator {operator[:100]} without a key")
        tests += [_parse_test(operator, key, value) for key, value in keys.items()]
    if len(tests) > TESTS_MAX:
        raise invalid(f"A condition has more than {TESTS_MAX} keys.")
    return tuple(tests)


def _parse_test(written: str, key: str, value: object) -> ConditionTest:
    qualifier, colon, operator = written.lower().rpartition(":")
    if colon and qualifier not in {_FOR_ALL, _FOR_ANY}:
        raise unsupported(f"The operator {written[:100]}")
    found = key.lower()
    if found not in _KNOWN and found not in _ABSENT and not found.startswith(_ABSENT_PREFIX):
        raise unsupported(f"The condition key {key[:100]}")
    values = _values(value)
    if operator == _NULL:
        # Known keys always have a value: Null tests whether the key is an absent one.
        if len(values) != 1 or values[0].lower() not in {"true", "false"}:
            raise invalid("The value of Null is not true or false.")
        return ConditionTest(
            found, None, is_negated=False, if_absent=values[0].lower() == "true"
        )
    plain = operator.removesuffix(_IF_EXISTS)
    if plain not in _OPERATORS:
        raise unsupported(f"The operator {written[:100]}")
    make, is_negated = _OPERATORS[plain]
    if qualifier:  # keys have one value, so it only decides for an absent key
        if_absent = qualifier == _FOR_ALL or plain != operator
    else:
        if_absent = is_negated or plain != operator
    return ConditionTest(found, make(values), is_negated, if_absent)


def _values(value: Any) -> list[str]:  # noqa: ANN401 - as JSON gave it
    """Return the values of a key as texts; numbers and booleans are converted."""
    given = value if isinstance(value, list) else [value]
    if not given or not all(isinstance(one, str | int | float) for one in given):
        raise invalid("A condition's value is not a text or a list of texts.")
    values = [str(one).lower() if isinstance(one, bool) else str(one) for one in given]
    if any("${" in one for one in values):
        raise unsupported("A variable")
    return values
