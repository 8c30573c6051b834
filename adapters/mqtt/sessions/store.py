"""Sessions on disk: the internal stream ``__mqtt_sessions``. Integers are big-endian.

client        client identifier, UTF-8, then 0x00 (no identifier holds one)
state key     0x01, client
state value   version u8 = 1, Session Expiry Interval u32, disconnected at i64 (unix ms, 0:
              connected), user name (length u16 + 1 or 0 for none, UTF-8), will (length u32,
              bytes), base sequence u64, next sequence u64, then three lists, each with its
              length u32: settled sequences above base (first u64, last u64; in version 0 one
              by one, u64), sequences u64 that PUBREC came for, positions (partition id u32,
              offset i64); with more than one shard, open identifiers of inbound QoS 2 messages:
              complete up to (epoch i64, count u64), length u32, then identifier u16, shard u16
filter key    0x02, client, the filter as the client wrote it
filter value  version u8 = 0, QoS u8, flags u8 (1 No Local, 2 Retain As Published), Retain
              Handling u8, identifier u32, count u32, starts (partition id u32, offset i64)
run key       0x03, client, first sequence u64
run value     see ``journal``
ended key     0x05, client, number u64: a subscription that has ended, with a rest to deliver
ended value   version u8 = 0, QoS u8, flags u8, Retain Handling u8, identifier u32 (all as
              above), topic filter (length u16, UTF-8), count u32, where it counts (partition
              id u32, start i64, end i64)
group key     0x04, group name, 0x00, filter
group value   version u8 = 0, count u32, positions (partition id u32, offset i64)
"""

import asyncio
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import structlog

from adapters.mqtt.ports import GroupPort, SessionPort
from adapters.mqtt.sessions.state_records import encode_state
from adapters.mqtt.sessions.subscription_records import (
    VERSION,
    encode_ended,
    encode_positions,
    encode_subscription,
)
from adapters.mqtt.subscriptions.subscription import Subscription
from gateway.coalescer import Part
from gateway.errors import GatewayError, StorageUnavailable
from gateway.sharded_stream import ShardedStream
from gateway.storage import OnDone
from gateway.streams import Item

STATE_KEY: Final = b"\x01"
FILTER_KEY: Final = b"\x02"
RUN_KEY: Final = b"\x03"
GROUP_KEY: Final = b"\x04"
ENDED_KEY: Final = b"\x05"
REMOVED_TOGETHER_MAX: Final = 1_000  # records of sessions that are gone, in one put
APPEND_BYTES_MAX: Final = 512 * 1024
"""Limit of one put that many records share. Names have up to 64 KiB and an append has to fit a
segment; an append that is refused takes with it all that was to be appended together."""

_SEQ: Final = struct.Struct(">Q")

log = structlog.get_logger()


class SessionStore:
    """Stores sessions. Nothing here waits: a caller that must wait passes an ``on_done``."""

    def __init__(self, stream: ShardedStream) -> None:
        self.stream = stream
        self._unremoved: set[bytes] = set()  # what a full disk refused to forget

    def journal(
        self,
        records: Sequence[tuple[str, int, bytes]],
        on_done: OnDone,
        beside: Sequence[Part] = (),
    ) -> None:
        """Store the messages that are sent in one turn, or a part of them, all or none.

        Records are (client identifier, first sequence number, value). ``beside`` has the entries
        of the lanes of shared subscriptions. Errors: as ``InternalStream.put``.
        """
        items = [(run_key(client_id, seq), value) for client_id, seq, value in records]
        self.stream.put(items, on_done, beside=beside)

    def put_state(self, session: "SessionPort", on_done: OnDone | None = None) -> None:
        """Store the position of a session, and remove the settled records of its journal.

        Many records that were refused before are stored first, in parts, so that they are durable
        when the state after them is. Many settled records are removed afterwards.
        """
        session.context.write_journals()  # no position is kept before what it has passed
        journal, base = session.journal, session.outbox.base
        settled = journal.settled(base)
        passed = frozenset(settled)
        refused = [seq for seq in journal.unkept if seq not in passed]
        again: list[Item] = [
            (run_key(session.client_id, seq), journal.unkept[seq]) for seq in refused
        ]
        count = _fitting(again)
        if count < len(again):
            done = partial(self._kept_again, session, refused[:count], on_done)
            self._put(again[:count], done)
            return
        gone = _gone(session, settled)
        forgotten = settled[: len(gone)]

        def on_kept(error: StorageUnavailable | None) -> None:
            if error is None:
                journal.forget(forgotten)
                journal.kept_again(refused)
                if len(forgotten) < len(settled):
                    self._forget_settled(session, base)
            else:
                session.context.dirty.add(session)
            (on_done or _log_failure)(error)

        self._put_with_state(session, gone + again, on_kept)

    def _kept_again(
        self,
        session: "SessionPort",
        first_seqs: Sequence[int],
        on_done: OnDone | None,
        error: StorageUnavailable | None,
    ) -> None:
        """Some of what was refused is kept: go on with the rest, then the state."""
        journal = session.journal
        if error is not None:
            session.context.dirty.add(session)
            (on_done or _log_failure)(error)
        elif not journal.is_over:
            journal.kept_again(first_seqs)
            self.put_state(session, on_done)

    def _forget_settled(self, session: "SessionPort", base: int) -> None:
        """Forget more of a journal that a state says is settled below ``base``, in parts."""
        journal = session.journal
        settled = journal.settled(base)
        gone = _gone(session, settled)
        if not gone:
            return

        def done(error: StorageUnavailable | None) -> None:
            if error is None:
                journal.forget(settled[: len(gone)])
                self._forget_settled(session, base)
            else:
                session.context.dirty.add(session)

        self._put(gone, done)

    def put_subscriptions(
        self, session: "SessionPort", written: Mapping[str, Subscription], on_done: OnDone
    ) -> None:
        """Store new subscriptions together with the session's positions."""
        session.context.write_journals()
        items: list[Item] = [
            (filter_key(session.client_id, name), encode_subscription(one))
            for name, one in written.items()
        ]
        self._put_with_state(session, items, on_done)

    def remove_subscriptions(
        self, session: "SessionPort", written: Sequence[str], on_done: OnDone
    ) -> None:
        """Forget subscriptions, together with where the session stands when a rest is left.

        Of a session that is not kept any more there may be some that were written down before.
        """
        keys = [filter_key(session.client_id, name) for name in written]
        items: list[Item] = [(key, None) for key in keys if self.stream.get(key) is not None]
        if not items:
            on_done(None)
            return
        session.context.write_journals()
        done = partial(self._removed, [key for key, _ in items], on_done)
        if session.is_kept and session.ended is not None:
            self._put_with_state(session, items, done)
        else:
            self._put(items, done)

    def _put_with_state(
        self, session: "SessionPort", items: list[Item], on_done: OnDone
    ) -> None:
        items.append((state_key(session.client_id), encode_state(session)))
        base = session.outbox.write()
        changes = _EndedChanges(session, items)

        def done(error: StorageUnavailable | None) -> None:
            changes.done(error)
            on_done(error)
            if error is None:
                session.on_state_kept(base)

        self._put(items, done)
        changes.written()

    def _put(self, items: Sequence[Item], on_done: OnDone) -> None:
        """Put items; what cannot be put at all is refused as by a full disk."""
        try:
            self.stream.put(items, on_done)
        except GatewayError as error:
            asyncio.get_running_loop().call_soon(on_done, StorageUnavailable(str(error)))

    def shard_of_group(self, group: "GroupPort") -> int:
        """Return the shard in which a shared subscription is written down."""
        return self.stream.shard_of(group_key(group.name, group.topic_filter), b"")

    def has_place_for(self, group: "GroupPort") -> bool:
        """Return whether a shared subscription is written down on this node."""
        return self.stream.is_here(self.shard_of_group(group))

    def put_group(self, group: "GroupPort", positions: Mapping[int, int]) -> None:
        """Write down how far a shared subscription is."""
        if not self.has_place_for(group):
            return  # another node's; the lanes of this one have what it knows
        group.context.write_journals()
        value = bytes((VERSION,)) + encode_positions(positions)
        self._put([(group_key(group.name, group.topic_filter), value)], _log_failure)

    def remove_group(self, group: "GroupPort") -> None:
        """Forget a shared subscription without members."""
        if self.has_place_for(group):
            self._put([(group_key(group.name, group.topic_filter), None)], _log_failure)

    def remove(self, session: "SessionPort") -> None:
        """Forget a session, whole: its state first, without which the rest does not count."""
        self.remove_orphans(_keys_of(session))

    def remove_orphans(self, keys: Sequence[bytes]) -> None:
        """Forget records of which there is no session, some of them together."""
        start = 0
        while start < len(keys):
            items: list[Item] = [
                (key, None) for key in keys[start : start + REMOVED_TOGETHER_MAX]
            ]
            items = items[: _fitting(items)]
            gone = [key for key, _ in items]
            self._put(items, partial(self._removed, gone, _log_failure))
            start += len(items)

    def remove_again(self, find: "Callable[[str], SessionPort | None]") -> None:
        """Repeat refused removals, except of records that a session has made again since."""
        if not self._unremoved:
            return
        unremoved, self._unremoved = self._unremoved, set()
        for client_id in {parse_key(key)[0] for key in unremoved}:
            session = find(client_id)
            if session is not None and session.is_kept:
                unremoved.difference_update(_keys_of(session))
        self.remove_orphans([key for key in unremoved if self.stream.get(key) is not None])

    def _removed(
        self, keys: Sequence[bytes], on_done: OnDone, error: StorageUnavailable | None
    ) -> None:
        if error is not None:
            self._unremoved.update(keys)
        on_done(error)


def _fitting(items: Sequence[Item]) -> int:
    """Return how many of the first items one append is to have: one at least, if there is one."""
    size_bytes = 0
    for at, (key, value) in enumerate(items):
        size_bytes += len(key) + len(value or b"")
        if at and size_bytes > APPEND_BYTES_MAX:
            return at
    return len(items)


def _gone(session: "SessionPort", first_seqs: Sequence[int]) -> list[Item]:
    """Return what forgets the first records of a journal, as many as fit an append."""
    keys: list[Item] = [(run_key(session.client_id, seq), None) for seq in first_seqs]
    return keys[: _fitting(keys)]


def _keys_of(session: "SessionPort") -> list[bytes]:
    """Return the keys of all records of a session."""
    client_id = session.client_id
    keys = [state_key(client_id)]
    keys += [filter_key(client_id, name) for name in session.subscriptions]
    if session.ended is not None:
        keys += [ended_key(client_id, number) for number in session.ended.kept]
    keys += [run_key(client_id, seq) for seq in session.journal.first_seqs()]
    return keys


class _EndedChanges:
    """Changes of a session's ended subscriptions to be written, added to ``items``."""

    def __init__(self, session: "SessionPort", items: list[Item]) -> None:
        self._session = session
        self._ended = ended = session.ended
        self._new: list[int] = []
        self._gone: list[int] = []
        if ended is None:
            return
        self._new, self._gone = ended.changes()
        client_id = session.client_id
        items += [
            (ended_key(client_id, number), encode_ended(ended.by_number[number]))
            for number in self._new
        ]
        items += [(ended_key(client_id, number), None) for number in self._gone]

    def written(self) -> None:
        """Note that the records are being written."""
        if self._ended is not None:
            self._ended.kept.update(self._new)
            self._ended.kept.difference_update(self._gone)

    def done(self, error: StorageUnavailable | None) -> None:
        """Note the outcome; after an error the next record of the session repeats the changes."""
        if error is not None and self._ended is not None:
            self._ended.kept.difference_update(self._new)
            self._ended.kept.update(self._gone)
            if self._session.ended is None:
                self._session.ended = self._ended
            self._session.context.dirty.add(self._session)


def _log_failure(error: StorageUnavailable | None) -> None:
    if error is not None:
        log.warning("session not written down", error=str(error))


def _client(client_id: str) -> bytes:
    return client_id.encode() + b"\0"


def state_key(client_id: str) -> bytes:
    """Return the key of a session's state."""
    return STATE_KEY + _client(client_id)


def filter_key(client_id: str, written: str) -> bytes:
    """Return the key of one subscription."""
    return FILTER_KEY + _client(client_id) + written.encode()


def run_key(client_id: str, first_seq: int) -> bytes:
    """Return the key of one run on its way."""
    return RUN_KEY + _client(client_id) + _SEQ.pack(first_seq)


def ended_key(client_id: str, number: int) -> bytes:
    """Return the key of a subscription that has ended."""
    return ENDED_KEY + _client(client_id) + _SEQ.pack(number)


def group_key(name: str, topic_filter: str) -> bytes:
    """Return the key of a shared subscription."""
    return GROUP_KEY + name.encode() + b"\0" + topic_filter.encode()


def parse_key(key: bytes) -> tuple[str, bytes]:
    """Return (client identifier or group, what follows it) of any key."""
    name, _, rest = key[1:].partition(b"\0")
    return name.decode(), rest
