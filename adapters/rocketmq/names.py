"""Names of topics and groups, and their rules (``TopicValidator``, ``Validators``).

A RocketMQ topic is the Headgate topic of the same name. Legal names have no dots, so topics that
have one are invisible here.
"""

import re
from typing import Final

from adapters.rocketmq.remoting.errors import Refused
from adapters.rocketmq.remoting.wire import ResponseCode
from gateway.errors import TopicNotFound
from gateway.model import DEFAULT_NAMESPACE, TopicName

DEFAULT_TOPIC: Final = "TBW102"
"""Topic whose route a producer asks for when its own topic is unknown: then it may be made."""
RETRY_PREFIX: Final = "%RETRY%"
NAME_CHARS_MAX: Final = 127
GROUP_CHARS_MAX: Final = 255
SYSTEM_TOPICS: Final = frozenset(
    {
        DEFAULT_TOPIC,
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)
"""Topics that RocketMQ's servers make for themselves and refuse messages for; none is here."""

_LEGAL: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_KEPT: Final = re.compile(r"[a-zA-Z0-9_-]{1,127}")


def is_visible(name: str) -> bool:
    """Say whether a Headgate topic has a name that RocketMQ's clients accept."""
    return _KEPT.fullmatch(name) is not None


def check_topic(name: str) -> None:
    """Check the name of a topic that is sent to. Error: ``Refused``, in the server's words."""
    if not name.strip():
        raise _invalid("The specified topic is blank.")
    if _LEGAL.fullmatch(name) is None:
        allowing = "^[%|a-zA-Z0-9_-]+$"
        remark = f"The specified topic contains illegal characters, allowing only {allowing}"
        raise _invalid(remark)
    if len(name) > NAME_CHARS_MAX:
        raise _invalid("The specified topic is longer than topic max length.")
    if name in SYSTEM_TOPICS:
        remark = f"Sending message to topic[{name}] is forbidden."
        raise Refused(ResponseCode.NO_PERMISSION, remark)


def to_topic_name(name: str) -> TopicName:
    """Return the Headgate topic of a RocketMQ topic. Error: ``TopicNotFound`` for none."""
    if not is_visible(name):
        raise TopicNotFound(f"topic[{name[:NAME_CHARS_MAX]}] not exist")
    return TopicName(DEFAULT_NAMESPACE, name)


def check_group(name: str) -> str:
    """Return a group's name if it can be one. Error: ``Refused``."""
    if not name.strip() or len(name) > GROUP_CHARS_MAX or _LEGAL.fullmatch(name) is None:
        raise _invalid("the specified group is blank, too long, or has illegal characters")
    return name


def _invalid(remark: str) -> Refused:
    return Refused(ResponseCode.INVALID_PARAMETER, remark)
