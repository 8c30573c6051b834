"""Attributes of a queue that sends and receives use, parsed once per change."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from adapters.sqs.mapping import BUILT_IN_PREFIXES, MESSAGE_BYTES_MAX, MS_PER_S
from adapters.sqs.queues.attribute_specs import PREFIX
from adapters.sqs.queues.names import is_fifo_name

_TRUE: Final = "true"


class QueueRules(NamedTuple):
    """Parsed attributes of the same names; ``dedup_by_group`` is DeduplicationScope."""

    is_fifo: bool = False
    message_bytes_max: int = MESSAGE_BYTES_MAX
    content_based_deduplication: bool = False
    dedup_by_group: bool = False
    receive_wait_ms: int = 0
    delay_ms: int = 0
    reserved_prefixes: tuple[str, ...] = BUILT_IN_PREFIXES
    """Prefixes of headers; message attributes of such names are stored apart."""


def parse_rules(
    name: str,
    attributes: Mapping[str, str],
    delay_ms: int,
    reserved_prefixes: tuple[str, ...] = BUILT_IN_PREFIXES,
) -> QueueRules:
    """Return the rules of a queue; attributes that are not set have SQS's defaults."""
    get = attributes.get
    return QueueRules(
        is_fifo=is_fifo_name(name),
        message_bytes_max=int(get(PREFIX + "MaximumMessageSize", MESSAGE_BYTES_MAX)),
        content_based_deduplication=get(PREFIX + "ContentBasedDeduplication") == _TRUE,
        dedup_by_group=get(PREFIX + "DeduplicationScope") == "messageGroup",
        receive_wait_ms=int(get(PREFIX + "ReceiveMessageWaitTimeSeconds", 0)) * MS_PER_S,
        delay_ms=delay_ms,
        reserved_prefixes=reserved_prefixes,
    )
