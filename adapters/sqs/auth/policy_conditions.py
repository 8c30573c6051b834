"""Conditions of a policy's statements: tests of what is known of a request. Pure.

Every test of a condition has to hold. One of several values is enough for a test, and none of
them may fit where the operator says Not. A key that a request has not, as ``aws:SourceArn``,
which only services of AWS bring, fails its test, but for operators with Not, ``IfExists``,
``ForAllValues`` and Null. Operators and keys that nobody could answer for here are refused.

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
    """What conditions are tested on: who asks, when, and how. Without TLS others may listen."""

    identity: Identity
    now_unix_ms: int
    is_tls: bool = False


class ConditionTest(NamedTuple):
    """One key of a condition. ``matches`` is None for the operator Null.

    ``if_absent``: what is said of a request without the key.
    """

    key: str
    matches: Matches | None
    is_negated: bool
    if_absent: bool


def holds(condition: Sequence[ConditionTest], context: RequestContext, *, allows: bool) -> bool:
    """Say whether a condition is met, for a statement that allows or denies.

    Who has not said who he is fails what asks for it where something is allowed, and meets it
    where it is denied: nobody gains by leaving his signature away.
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


# --- what is known of a request


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
# What no request here has: it is of services, organizations, networks of AWS or sessions.
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
    """Match part by part: a star does not reach over a colon, but in the last part."""
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
    """Return an operator that compares what is found with any of its values."""

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
    """Return the unix time, in seconds, of a date by ISO 8601 or of such a number."""
    with suppress(ValueError, OverflowError):
        date = datetime.fromisoformat(text)
        return Decimal((date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp())
    return _parse_number(text)


# By their names in lower case: an operator that compares, and whether its test is the contrary.
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
    """Return the tests of a statement's Condition. Errors: ``policy.parse_policy``'s."""
    if condition is None:
        return ()
    if not isinstance(condition, dict):
        raise invalid("Condition is not a map.")
    tests: list[ConditionTest] = []
    for operator, keys in condition.items():
        if not isinstance(keys, dict):
            raise invalid("An operator of a condition has no map of keys.")
        if not keys:  # or the statement would hold without a condition
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
        # All keys that are known have a value; what is asked is whether there is none.
        if len(values) != 1 or values[0].lower() not in {"true", "false"}:
            raise invalid("The value of Null is not true or false.")
        return ConditionTest(
            found, None, is_negated=False, if_absent=values[0].lower() == "true"
        )
    plain = operator.removesuffix(_IF_EXISTS)
    if plain not in _OPERATORS:
        raise unsupported(f"The operator {written[:100]}")
    make, is_negated = _OPERATORS[plain]
    if qualifier:  # keys here have one value, so it tells only what an absent one means
        if_absent = qualifier == _FOR_ALL or plain != operator
    else:
        if_absent = is_negated or plain != operator
    return ConditionTest(found, make(values), is_negated, if_absent)


def _values(value: Any) -> list[str]:  # noqa: ANN401 - as JSON gave it
    """Return the values of a key as texts; numbers and booleans may stand as they are."""
    given = value if isinstance(value, list) else [value]
    if not given or not all(isinstance(one, str | int | float) for one in given):
        raise invalid("A condition's value is not a text or a list of texts.")
    values = [str(one).lower() if isinstance(one, bool) else str(one) for one in given]
    if any("${" in one for one in values):
        raise unsupported("A variable")
    return values
