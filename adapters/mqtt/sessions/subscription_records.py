"""The records of subscriptions, of now and ended, as ``store`` says them."""

import struct
from collections.abc import Mapping
from typing import Final

from adapters.mqtt.ports import SessionPort
from adapters.mqtt.subscriptions.ended import EndedSubscription
from adapters.mqtt.subscriptions.subscription import Subscription
from gateway.errors import CorruptBatch

VERSION: Final = 0
COUNT: Final = struct.Struct(">I")

_POSITION: Final = struct.Struct(">Iq")
_SPAN: Final = struct.Struct(">Iqq")
_FILTER: Final = struct.Struct(">BBBBI")
_SIZE: Final = struct.Struct(">H")
_NO_LOCAL: Final = 1
_RETAIN_AS_PUBLISHED: Final = 2


def encode_subscription(subscription: Subscription) -> bytes:
    """Return the filter value."""
    return _encode_options(subscription) + encode_positions(subscription.starts)


def _encode_options(subscription: Subscription) -> bytes:
    flags = _NO_LOCAL * subscription.no_local
    flags |= _RETAIN_AS_PUBLISHED * subscription.retain_as_published
    return _FILTER.pack(
        VERSION,
        subscription.qos,
        flags,
        subscription.retain_handling,
        subscription.identifier,
    )


def decode_subscription(topic_filter: str, group: str | None, value: bytes) -> Subscription:
    """Return the subscription that a filter value says. Error: ``CorruptBatch``."""
    try:
        subscription = _decode_options(topic_filter, group, value)
        subscription.starts, _ = decode_positions(value, _FILTER.size)
    except struct.error as error:
        msg = f"a subscription cannot be read: {error}"
        raise CorruptBatch(msg) from error
    return subscription


def _decode_options(topic_filter: str, group: str | None, value: bytes) -> Subscription:
    version, qos, flags, retain_handling, identifier = _FILTER.unpack_from(value)
    check_version(version)
    return Subscription(
        topic_filter,
        group=group,
        qos=qos,
        no_local=bool(flags & _NO_LOCAL),
        retain_as_published=bool(flags & _RETAIN_AS_PUBLISHED),
        retain_handling=retain_handling,
        identifier=identifier,
    )


def encode_ended(one: EndedSubscription[SessionPort]) -> bytes:
    """Return the value of a subscription that has ended."""
    spans = [
        _SPAN.pack(partition_id, one.starts[partition_id], end)
        for partition_id, end in one.ends.items()
    ]
    topic_filter = one.subscription.topic_filter.encode()
    options = _encode_options(one.subscription)
    head = (options, _SIZE.pack(len(topic_filter)), topic_filter, COUNT.pack(len(spans)))
    return b"".join((*head, *spans))


def decode_ended(
    session: "SessionPort", number: int, value: bytes
) -> EndedSubscription[SessionPort]:
    """Return the ended subscription that a value says. Error: ``CorruptBatch``."""
    starts, ends = {}, {}
    try:
        (size,) = _SIZE.unpack_from(value, _FILTER.size)
        at = _FILTER.size + _SIZE.size
        subscription = _decode_options(value[at : at + size].decode(), None, value)
        at += size
        (count,) = COUNT.unpack_from(value, at)
        at += COUNT.size
        for _ in range(count):
            partition_id, start, end = _SPAN.unpack_from(value, at)
            starts[partition_id], ends[partition_id] = start, end
            at += _SPAN.size
    except (struct.error, UnicodeDecodeError) as error:
        msg = f"an ended subscription cannot be read: {error}"
        raise CorruptBatch(msg) from error
    return EndedSubscription(session, number, subscription, starts=starts, ends=ends)


def check_version(version: int) -> None:
    """Error: ``CorruptBatch`` for a record of another version."""
    if version != VERSION:
        msg = f"version {version} of a stored MQTT session is not known to this version"
        raise CorruptBatch(msg)


def encode_positions(positions: Mapping[int, int]) -> bytes:
    """Return a list of positions by partition id."""
    return COUNT.pack(len(positions)) + b"".join(
        _POSITION.pack(partition_id, offset) for partition_id, offset in positions.items()
    )


def decode_positions(value: bytes, at: int) -> tuple[dict[int, int], int]:
    """Return a list of positions, and where it ends. Error: ``struct.error``."""
    (count,) = COUNT.unpack_from(value, at)
    at += COUNT.size
    positions = {}
    for _ in range(count):
        partition_id, offset = _POSITION.unpack_from(value, at)
        positions[partition_id] = offset
        at += _POSITION.size
    return positions, at
