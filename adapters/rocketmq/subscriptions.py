"""Subscriptions of consumers (``SubscriptionData``), and the filters that they make."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from adapters.rocketmq.remoting.errors import Refused
from adapters.rocketmq.remoting.wire import ResponseCode
from features.selector.model import InvalidSelector
from features.selector.rocketmq import compile_rocketmq
from features.selector.tags import parse_tags

TAG: Final = "TAG"
SQL92: Final = "SQL92"
TAGS: Final = "TAGS"
_FILTERS_MAX: Final = 1_000

Matches = Callable[[Mapping[str, str]], bool]
"""Says whether a message with these properties is wanted."""


class Subscription(NamedTuple):
    """Expression by which a consumer selects messages of a topic.

    ``version`` grows with each change; clients take unix milliseconds.
    """

    expression: str
    expression_type: str
    version: int


@lru_cache(maxsize=_FILTERS_MAX)
def filter_of(expression: str | None, expression_type: str | None) -> Matches | None:
    """Return the filter of an expression, None for one that selects all.

    Error: ``Refused`` with SUBSCRIPTION_PARSE_FAILED.
    """
    try:
        if expression_type in {None, "", TAG}:
            tags = parse_tags(expression)
            if tags.is_all:
                return None
            return lambda properties: tags.matches(properties.get(TAGS))
        if expression_type == SQL92:
            return compile_rocketmq(expression or "").matches
    except InvalidSelector as error:
        raise _unreadable(str(error)) from None
    raise _unreadable(f"expression type {expression_type!r} is not known")


def decode_subscription(data: Mapping[str, Any]) -> tuple[str, Subscription]:
    """Return the topic and the subscription of a JSON object. Error: ``Refused``."""
    topic, text = data.get("topic"), data.get("subString")
    kind, version = data.get("expressionType"), data.get("subVersion", 0)
    if not isinstance(topic, str) or type(version) is not int:
        raise _unreadable("a subscription has no topic, or a version that is no number")
    if not isinstance(text, str | None) or not isinstance(kind, str | None):
        raise _unreadable("the expression of a subscription is no text")
    return topic, Subscription(text or "*", kind or TAG, version)


def _unreadable(remark: str) -> Refused:
    return Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark)
