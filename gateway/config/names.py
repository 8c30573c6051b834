"""Words that several sections share: topic names, checked as for new topics, and modes."""

from typing import Annotated, Literal

from pydantic import AfterValidator

from gateway.errors import InvalidTopicName
from gateway.model import NAME_CHARS_MAX, check_topic_name


def _check(name: str) -> str:
    try:
        return check_topic_name(name)
    except InvalidTopicName:
        msg = f"the name of a topic is 1 to {NAME_CHARS_MAX} of a-zA-Z0-9._-"
        raise ValueError(msg) from None


def _check_unless_empty(name: str) -> str:
    return name and _check(name)


TopicNameText = Annotated[str, AfterValidator(_check)]
DeclaredMode = Literal["create", "enforce"]
"""Effect of a start on a declared topic or queue that is there and differs."""
TopicNameOrNone = Annotated[str, AfterValidator(_check_unless_empty)]
"""A topic's name, or an empty text for no topic."""
