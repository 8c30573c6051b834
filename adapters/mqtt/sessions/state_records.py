"""The values that say where sessions and groups stand; their layout is in ``store``."""

import struct
from typing import Final, NamedTuple

from adapters.mqtt.errors import MqttError
from adapters.mqtt.inflight.open_identifiers import OpenIdentifiers, decode_identifiers
from adapters.mqtt.ports import SessionPort
from adapters.mqtt.publishing.wills import decode_will, encode_will
from adapters.mqtt.sessions.subscription_records import (
    COUNT,
    check_version,
    decode_positions,
    encode_positions,
)
from adapters.mqtt.wire import Will
from features.ranges import RangeSet
from gateway.errors import CorruptBatch, InvalidRecord

_STATE: Final = struct.Struct(">BIqH")
_SEQUENCES: Final = struct.Struct(">QQ")
_SEQ_BYTES: Final = 8
_STATE_VERSION: Final = 1
_SETTLED_ONE_BY_ONE: Final = 0  # the version before: settled sequences were a list


class StoredState(NamedTuple):
    """Decoded state value of a session."""

    expiry_s: int
    disconnected_unix_ms: int
    username: str | None
    will: Will | None
    base: int
    next_seq: int
    done: RangeSet
    received: tuple[int, ...]
    positions: dict[int, int]
    inbound: OpenIdentifiers


def encode_state(session: "SessionPort") -> bytes:
    """Return the state value."""
    outbox = session.outbox
    user = None if session.username is None else session.username.encode()
    will = b"" if session.will is None else encode_will(session.will)
    return b"".join(
        (
            _STATE.pack(
                _STATE_VERSION,
                session.expiry_s,
                session.disconnected_unix_ms,
                0 if user is None else len(user) + 1,
            ),
            user or b"",
            COUNT.pack(len(will)),
            will,
            _SEQUENCES.pack(outbox.base, outbox.next_seq),
            _encode_ranges(outbox.done),
            _encode_seqs(outbox.received),
            encode_positions(session.context.positions_of(session)),
            session.inbound.encode(),
        )
    )


def decode_state(value: bytes) -> StoredState:
    """Return what a state value says. Error: ``CorruptBatch``."""
    try:
        version, expiry_s, disconnected_unix_ms, user_bytes = _STATE.unpack_from(value)
        if version != _STATE_VERSION:
            check_version(version)
        at = _STATE.size
        username = None
        if user_bytes:
            username = value[at : at + user_bytes - 1].decode()
            at += user_bytes - 1
        (will_bytes,) = COUNT.unpack_from(value, at)
        at += COUNT.size
        will = decode_will(value[at : at + will_bytes]) if will_bytes else None
        at += will_bytes
        base, next_seq = _SEQUENCES.unpack_from(value, at)
        decode_done = _decode_singly if version == _SETTLED_ONE_BY_ONE else _decode_ranges
        done, at = decode_done(value, at + _SEQUENCES.size)
        received, at = _decode_seqs(value, at)
        positions, at = decode_positions(value, at)
        inbound = decode_identifiers(value, at)
    except (struct.error, UnicodeDecodeError, MqttError, InvalidRecord) as error:
        msg = f"a session's state cannot be read: {error}"
        raise CorruptBatch(msg) from error
    return StoredState(
        expiry_s,
        disconnected_unix_ms,
        username,
        will,
        base,
        next_seq,
        done,
        received,
        positions,
        inbound,
    )


def decode_group(value: bytes) -> dict[int, int]:
    """Return the positions that a group value says. Error: ``CorruptBatch``."""
    try:
        check_version(value[0])
        return decode_positions(value, 1)[0]
    except (struct.error, IndexError) as error:
        msg = f"a shared subscription's positions cannot be read: {error}"
        raise CorruptBatch(msg) from error


def _encode_ranges(seqs: RangeSet) -> bytes:
    found = [_SEQUENCES.pack(first, last) for first, last in seqs]
    return COUNT.pack(len(found)) + b"".join(found)


def _decode_ranges(value: bytes, at: int) -> tuple[RangeSet, int]:
    (count,) = COUNT.unpack_from(value, at)
    seqs = RangeSet()
    at += COUNT.size
    for _ in range(count):
        seqs.add(*_SEQUENCES.unpack_from(value, at))
        at += _SEQUENCES.size
    return seqs, at


def _decode_singly(value: bytes, at: int) -> tuple[RangeSet, int]:
    found, at = _decode_seqs(value, at)
    seqs = RangeSet()
    for seq in found:
        seqs.add(seq, seq)
    return seqs, at


def _encode_seqs(seqs: "set[int]") -> bytes:
    return COUNT.pack(len(seqs)) + struct.pack(f">{len(seqs)}Q", *sorted(seqs))


def _decode_seqs(value: bytes, at: int) -> tuple[tuple[int, ...], int]:
    (count,) = COUNT.unpack_from(value, at)
    at += COUNT.size
    return struct.unpack_from(f">{count}Q", value, at), at + _SEQ_BYTES * count
