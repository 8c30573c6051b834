"""Records on their way to another shard, as bytes of an intent, and the frame of one part."""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from gateway.errors import InvalidRecord, MessageTooLarge
from gateway.model import HEADER_BYTES, Record
from gateway.records.codec import encode_headers, encode_runs, iter_records
from gateway.records.record_run import RecordRun, Run
from gateway.topics.manager import Topic

_EFFECT: Final = struct.Struct(">16sII")
_FRAME: Final = struct.Struct(">HIQ")


class Addressed(NamedTuple):
    """Records for a partition that any node may own."""

    topic: Topic
    number: int
    run: Run


class Transfer(NamedTuple):
    """Part of an intent, as it is sent; ``epoch`` is the source shard's."""

    source: int
    target: int
    epoch: int
    number: int
    payload: bytes


class TransferCodec:
    """Bytes of a transfer; see ``gateway.shards.model.Codec``. A reply has no payload."""

    def encode_request(self, payload: object) -> bytes:
        """Return a transfer as bytes."""
        assert isinstance(payload, Transfer)
        lead = _FRAME.pack(payload.source, payload.epoch, payload.number)
        return lead + payload.target.to_bytes(2, "big") + payload.payload

    def decode_request(self, data: bytes) -> object:
        """Return a transfer."""
        source, epoch, number = _FRAME.unpack_from(data)
        at = _FRAME.size
        target = int.from_bytes(data[at : at + 2], "big")
        return Transfer(source, target, epoch, number, data[at + 2 :])

    def encode_reply(self, payload: object) -> bytes:
        """Return nothing: the status says it all."""
        del payload
        return b""

    def decode_reply(self, data: bytes) -> object:
        """See ``encode_reply``."""
        return data or None


def check_addressed(one: Addressed) -> None:
    """Check records for another node's partition, as ``Coalescer.check`` does for an own.

    Errors: ``MessageTooLarge``, ``InvalidRecord``.
    """
    settings = one.topic.settings
    record_bytes_max = settings.message_bytes_max - HEADER_BYTES
    if one.run.largest_bytes > record_bytes_max:
        raise MessageTooLarge(
            f"{one.run.largest_bytes} bytes, at most {record_bytes_max} are taken"
        )
    if settings.compacts and one.run.key is None:
        raise InvalidRecord("a record without a key, and the topic is compacted")


def encode_payload(some: Sequence[Addressed]) -> bytes:
    """Return records as the payload of a part, in order."""
    parts: list[bytes | bytearray] = []
    for topic, number, run in some:
        batch = encode_runs([run])
        parts += (_EFFECT.pack(topic.uuid.bytes, number, len(batch)), batch)
    return b"".join(parts)


def topic_uuid_of(payload: bytes) -> UUID:
    """Return the uuid of the topic of a payload's first effect."""
    return UUID(bytes=payload[:16])


def decode_payload(payload: bytes) -> Iterator[tuple[UUID, int, list[Record]]]:
    """Yield topic uuid, partition number and records of each effect."""
    at = 0
    while at < len(payload):
        uuid, number, size = _EFFECT.unpack_from(payload, at)
        at += _EFFECT.size
        yield UUID(bytes=uuid), number, list(iter_records(payload[at : at + size]))
        at += size


def to_runs(records: Iterable[Record], now_unix_ms: int) -> list[RecordRun]:
    """Return records to be appended; none has a time that is still to come here."""
    return [
        RecordRun(
            record.key,
            (record.value,),
            encode_headers(record.headers),
            min(record.timestamp_unix_ms, now_unix_ms),
        )
        for record in records
    ]
