"""Headers of sends: with long names (``SendMessageRequestHeader``) or letters (V2)."""

from typing import Final, NamedTuple

from adapters.rocketmq.remoting.fields import Fields, flag_of, number_of, text_of
from adapters.rocketmq.remoting.wire import RequestCode

_LONG: Final = (
    "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag",
    "bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes",
    "batch",
)  # fmt: skip
_LETTERS: Final = tuple("abcdefghijklm")


class SendHeader(NamedTuple):
    """Header of a send. ``queue_id`` -1 leaves the choice to the server."""

    producer_group: str
    topic: str
    default_topic: str
    default_queues: int
    queue_id: int
    system_flag: int
    born_unix_ms: int
    flag: int
    properties: str
    reconsume_times: int
    is_batch: bool


def decode_send_header(code: int, fields: Fields) -> SendHeader:
    """Return the header of a send, of any of its codes. Errors: ``Refused``."""
    names = _LONG if code == RequestCode.SEND_MESSAGE else _LETTERS
    group, topic, default, queues, queue, system, born, flag, properties, times = names[:10]
    return SendHeader(
        text_of(fields, group),
        text_of(fields, topic),
        text_of(fields, default),
        number_of(fields, queues),
        number_of(fields, queue),
        number_of(fields, system),
        number_of(fields, born),
        number_of(fields, flag),
        fields.get(properties) or "",
        number_of(fields, times, 0),
        code == RequestCode.SEND_BATCH_MESSAGE or flag_of(fields, names[-1]),
    )
