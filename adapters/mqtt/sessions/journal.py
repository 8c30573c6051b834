"""The journal of a session: what leaves for its client at QoS 1 and 2 is written down first.

All that leaves in one turn of the loop is one record, or several where it is much. With QoS 2 in
it, it leaves when the record is kept: after a crash an identifier must still mean the same
message. What comes behind it waits too, so that the order is the log's for all QoS together.

    run value     version u8 = 0, runs u16, then for each: messages u32, partition id i64 (-1:
                  retained), first offset i64, QoS u8, retain u8, group (length u32, UTF-8, as
                  the client wrote it), identifiers (count u16, u32 each), topics (count u16,
                  length u16 and bytes each)

Sequence numbers run on from that of the key.
"""

import struct
from collections import deque
from collections.abc import Sequence
from itertools import takewhile
from typing import Final, NamedTuple, Protocol

from adapters.mqtt.inflight.outbox import Inflight
from adapters.mqtt.ports import ContextPort, SessionConnection, SessionPort
from adapters.mqtt.wire import EXACTLY_ONCE
from gateway.errors import CorruptBatch, GatewayError
from gateway.model import Buffer

RUNS_MAX: Final = 1_000  # of one record
RECORD_BYTES_MAX: Final = 512 * 1024
"""Limit of one record, unless a run alone has more. The stream takes 32 MiB; a run repeats names
and identifiers, of up to half a MiB, and a record waits in one append with those of others."""

_VERSION: Final = 0
_HEAD: Final = struct.Struct(">BH")
_RUN: Final = struct.Struct(">IqqBBI")
_SHORT: Final = struct.Struct(">H")


class Written(NamedTuple):
    """A record that the stream has: the sequence numbers of its messages."""

    first_seq: int
    end_seq: int


class Leaving(NamedTuple):
    """Packets whose record is being written; they wait for it when they must."""

    connection: "SessionConnection | None"
    data: Sequence[Buffer]
    is_waiting: bool


class JournalServices(ContextPort, Protocol):
    """Services that a journal uses."""

    def journal_soon(self, journal: "SessionJournal") -> None:
        """Write a session's journal at the end of this turn of the loop."""


class JournaledSession(SessionPort, Protocol):
    """A session that has a journal."""

    @property
    def context(self) -> JournalServices:
        """The context that all sessions share."""


class SessionJournal:
    """Messages that one session has sent and that are not acknowledged."""

    __slots__ = (
        "_data",
        "_new",
        "_new_bytes",
        "_waiting",
        "_written",
        "is_over",
        "session",
        "unkept",
    )

    def __init__(self, session: JournaledSession) -> None:
        self.session = session
        self._new: list[Inflight] = []
        self._new_bytes = 0
        self._data: list[Buffer] = []
        self.is_over = False  # with its session: nothing more is written
        self._written: deque[Written] = deque()
        self._waiting = 0  # records that hold up what comes behind them
        self.unkept: dict[int, bytes] = {}  # records that the disk refused, by first sequence

    @property
    def is_held_up(self) -> bool:
        """Whether what is added now leaves later than what needs no journal."""
        return self._waiting > 0 or bool(self._new and self._new[0].qos == EXACTLY_ONCE)

    def add(self, run: Inflight, data: Buffer) -> None:
        """Queue a run to be recorded, and its packets to be sent, at the end of this turn."""
        if self.is_over:
            return
        context = self.session.context
        run_bytes = encoded_bytes(run)
        if self._new and (
            # What need not wait leaves before.
            (run.qos == EXACTLY_ONCE and not self._waiting)
            or self._new_bytes + run_bytes > RECORD_BYTES_MAX
        ):
            context.write_journals()
        if not self._new:
            context.journal_soon(self)
        self._new.append(run)
        self._new_bytes += run_bytes
        self._data.append(data)
        if len(self._new) >= RUNS_MAX:
            context.write_journals()

    def prepare(self) -> tuple[int, bytes, Leaving]:
        """Return what was added as a record: first sequence number, value, and its packets."""
        runs, self._new = self._new, []
        data, self._data = self._data, []
        self._new_bytes = 0
        first_seq = runs[0].first_seq
        self._written.append(Written(first_seq, runs[-1].first_seq + runs[-1].length))
        is_waiting = self._waiting > 0 or any(run.qos == EXACTLY_ONCE for run in runs)
        self._waiting += is_waiting
        leaving = Leaving(self.session.connection, data, is_waiting)
        return first_seq, encode_runs(runs), leaving

    def leave(self, leaving: Leaving) -> None:
        """Send packets, unless their client has gone."""
        connection = leaving.connection
        if connection is not None and self.session.connection is connection:
            self.session.send(connection, *leaving.data)

    def on_kept(self, leaving: Leaving) -> None:
        """A record is kept: packets that waited for it leave."""
        if leaving.is_waiting:
            self._waiting -= 1
            self.leave(leaving)

    def on_refused(
        self, leaving: Leaving, record: tuple[int, bytes], error: GatewayError
    ) -> None:
        """A record is not kept: it goes with the next checkpoint, and the client comes back."""
        self._waiting -= leaving.is_waiting
        if self.is_over:
            return
        first_seq, value = record
        self.unkept[first_seq] = value
        self.session.context.dirty.add(self.session)  # its client may have gone already
        connection = leaving.connection
        if connection is not None and self.session.connection is connection:
            connection.fail(error)

    def settled(self, base: int) -> list[int]:
        """Return the first sequence numbers of records that end below ``base``, in order."""
        return [
            one.first_seq for one in takewhile(lambda one: one.end_seq <= base, self._written)
        ]

    def forget(self, first_seqs: Sequence[int]) -> None:
        """Records have gone from the stream."""
        gone = frozenset(first_seqs)
        while self._written and self._written[0].first_seq in gone:
            self.unkept.pop(self._written.popleft().first_seq, None)

    def kept_again(self, first_seqs: Sequence[int]) -> None:
        """Records that were refused before are kept now."""
        for seq in first_seqs:
            self.unkept.pop(seq, None)

    def close(self) -> None:
        """The session is over; its records are being removed, and one of its name may come."""
        self.is_over = True
        self._written.clear()
        self.unkept.clear()
        if not self._new and not self._waiting:
            del self.session  # the two hold each other

    def first_seqs(self) -> list[int]:
        """Return the first sequence numbers of all records that the stream has."""
        return [record.first_seq for record in self._written]

    def restore(self, runs: Sequence[Inflight]) -> None:
        """A record was found at a start; they come in order."""
        end_seq = runs[-1].first_seq + runs[-1].length
        self._written.append(Written(runs[0].first_seq, end_seq))


def encoded_bytes(run: Inflight) -> int:
    """Return how many bytes of a run value a run takes."""
    size_bytes = _RUN.size + 2 * _SHORT.size + 4 * len(run.identifiers)
    if run.group:
        size_bytes += len(run.group.encode())
    if run.topics:
        size_bytes += _SHORT.size * len(run.topics) + sum(map(len, run.topics))
    return size_bytes


def encode_runs(runs: Sequence[Inflight]) -> bytes:
    """Return the run value."""
    parts = [_HEAD.pack(_VERSION, len(runs))]
    for run in runs:
        group = run.group.encode()
        parts += (
            _RUN.pack(
                run.length,
                run.partition_id,
                run.first_offset,
                run.qos,
                run.retain,
                len(group),
            ),
            group,
            _SHORT.pack(len(run.identifiers)),
            struct.pack(f">{len(run.identifiers)}I", *run.identifiers),
            _SHORT.pack(len(run.topics)),
        )
        for topic in run.topics:
            parts += (_SHORT.pack(len(topic)), topic)
    return b"".join(parts)


def decode_runs(first_seq: int, value: bytes) -> list[Inflight]:
    """Return the runs (one or more) that a run value says. Error: ``CorruptBatch``."""
    runs = []
    try:
        version, count = _HEAD.unpack_from(value)
        if version != _VERSION or not count:
            msg = f"version {version} of a stored MQTT journal is not known to this version"
            raise CorruptBatch(msg)
        at = _HEAD.size
        for _ in range(count):
            run, at = _decode_run(first_seq, value, at)
            first_seq += run.length
            runs.append(run)
    except (struct.error, UnicodeDecodeError) as error:
        msg = f"a run on its way cannot be read: {error}"
        raise CorruptBatch(msg) from error
    if at != len(value):
        msg = f"a run on its way has {len(value) - at} bytes too many"
        raise CorruptBatch(msg)
    return runs


def _decode_run(first_seq: int, value: bytes, at: int) -> tuple[Inflight, int]:
    length, partition_id, first_offset, qos, retain, group_bytes = _RUN.unpack_from(value, at)
    at += _RUN.size
    group = value[at : at + group_bytes].decode()
    at += group_bytes
    (identifier_count,) = _SHORT.unpack_from(value, at)
    identifiers = struct.unpack_from(f">{identifier_count}I", value, at + _SHORT.size)
    at += _SHORT.size + 4 * identifier_count
    (topic_count,) = _SHORT.unpack_from(value, at)
    at += _SHORT.size
    topics = []
    for _ in range(topic_count):
        (topic_bytes,) = _SHORT.unpack_from(value, at)
        at += _SHORT.size
        topics.append(value[at : at + topic_bytes])
        at += topic_bytes
    run = Inflight(
        first_seq,
        length,
        partition_id,
        first_offset,
        qos,
        bool(retain),
        identifiers,
        group,
        tuple(topics),
    )
    return run, at
