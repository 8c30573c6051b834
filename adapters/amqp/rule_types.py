"""Permissions as RabbitMQ has them: rules with a vhost and a regular expression for names.

The pattern of a rule is ``<vhost>/<expression>``, the vhost percent-encoded; the expression is
searched for in the name of a queue or an exchange, an empty one matches the empty name only.
CREATE is "configure": to create and to delete.
"""

from typing import Final
from urllib.parse import quote, unquote

from gateway.auth.ports import Operation, PatternKind, ResourceType, Rule
from gateway.regexes import InvalidRegex, compile_regex

_OPERATIONS: Final = frozenset(
    {Operation.CREATE, Operation.WRITE, Operation.READ, Operation.ALL}
)


def permission_name(vhost: str, text: str) -> str:
    """Return a vhost with a name of it, or with an expression.

    >>> permission_name("/", "orders")
    '%2F/orders'
    """
    return f"{quote(vhost, safe='')}/{text}"


def split_permission(pattern: str) -> tuple[str, str]:
    """Return the vhost and the expression of a rule's pattern."""
    vhost, _, expression = pattern.partition("/")
    return unquote(vhost), expression


def matches(expression: str, name: str) -> bool:
    """Say whether an expression of RabbitMQ matches a name."""
    return bool(compile_regex(expression or "^$").search(name))


def _selects(pattern: str, name: str) -> bool:
    vhost, _, expression = pattern.partition("/")
    named, _, text = name.partition("/")
    return vhost == named and matches(expression, text)


def _check(rule: Rule) -> str | None:
    if rule.operation not in _OPERATIONS:
        return f"{rule.operation.value}: a permission is to configure, write or read"
    vhost, slash, expression = rule.pattern.partition("/")
    if not slash or not vhost:
        return f"{rule.pattern[:80]!r} is no vhost and expression, as %2F/.*"
    try:
        compile_regex(expression or "^$")
    except InvalidRegex as error:
        return f"{expression[:80]!r} is no regular expression: {error}"
    return None


REGEX: Final = PatternKind("regex", _selects)
PERMISSION: Final = ResourceType(
    "amqp_permission",
    (REGEX,),
    words={"configure": Operation.CREATE},
    plural="AMQP permissions",
    check=_check,
)
