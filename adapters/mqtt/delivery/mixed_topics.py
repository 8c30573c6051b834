"""Delivery of messages whose topics alternate, as columns: runs would have one message each.

A message has a payload and a *kind*: a run without payloads that all messages of that topic and
form share. Receivers and the first bytes of packets are found once for each kind. A session gets
all adjacent messages in one write, as one range of its window.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from adapters.mqtt.delivery.publish_forms import PacketHeads, heads_of, join_packets
from adapters.mqtt.inflight.outbox import packet_id_of
from adapters.mqtt.ports import SessionConnection, SessionPort, SubscriberMatch
from adapters.mqtt.records.mixed_topic_batch import MixedTopicBatch
from adapters.mqtt.wire import PublishRun

HEAD_BYTES_MAX: Final = 9  # of a packet: flags, length, the topic's length, identifier


class _Manner(NamedTuple):
    """Common options of messages in flight, as in ``outbox.Inflight``."""

    qos: int
    retain: bool
    identifiers: tuple[int, ...]


_Sent = tuple[_Manner, PacketHeads]


class _Way(NamedTuple):
    """A delivery: its session, connection, messages and partition."""

    session: "SessionPort"
    connection: "SessionConnection"
    mixed: MixedTopicBatch
    partition_id: int


def send_mixed_topics(
    session: "SessionPort",
    mixed: MixedTopicBatch,
    indexes: range,
    matches: "Mapping[PublishRun, SubscriberMatch]",
    partition_id: int,
) -> int | None:
    """Send those of the messages at ``indexes`` whose kinds have a match.

    Return the index up to which all are sent; it is less than their end when the window is full.
    Return None, with nothing sent, when each message must be sent by itself: an alias is to be
    set, a packet may be too large, or a match counts from a later offset on.
    """
    connection, start, stop = session.connection, indexes.start, indexes.stop
    if connection is None or not session.is_ready:
        return start
    if connection.topic_alias_maximum:
        return None
    offset = mixed.base_offset + start
    room_bytes = connection.packet_bytes_max - max(map(len, mixed.payloads[start:stop]))
    sent: dict[PublishRun, _Sent | None] = {}
    for kind in set(mixed.kinds[start:stop]):
        match = matches.get(kind)
        if match is None:
            sent[kind] = None
            continue
        if not all(one.counts(partition_id, offset) for one in match.subscriptions):
            return None
        sent[kind] = found = _how(session, connection, kind, match)
        if found is not None and found[1].common_bytes + HEAD_BYTES_MAX > room_bytes:
            return None
    way = _Way(session, connection, mixed, partition_id)
    return _send(way, start, [sent[kind] for kind in mixed.kinds[start:stop]])


def _how(
    session: "SessionPort",
    connection: "SessionConnection",
    kind: PublishRun,
    match: "SubscriberMatch",
) -> _Sent | None:
    """Return the first bytes of packets of a kind; None when they are not sent."""
    if match.no_local and kind.client_id == session.client_id:
        own = match.for_own()
        if own is None:
            return None
        match = own
    qos = min(kind.qos, match.qos)
    if not qos:
        return None
    manner = _Manner(qos, kind.retain and match.retain_as_published, match.identifiers)
    return manner, heads_of(
        kind,
        connection.version,
        qos,
        retain=manner.retain,
        identifiers=manner.identifiers,
    )


def _send(way: _Way, start: int, column: Sequence[_Sent | None]) -> int:
    """Send messages from ``start`` on, each as the column says, as far as there is room."""
    room = way.session.outbox.room
    at, count = 0, len(column)
    while at < count:
        found = column[at]
        if found is None:
            at += 1
            continue
        if room <= 0:
            break
        manner = found[0]
        heads: list[PacketHeads] = []
        for other in column[at : at + room]:
            if other is None or other[0] != manner:
                break
            heads.append(other[1])
        _send_stretch(way, start + at, manner, heads)
        room -= len(heads)
        at += len(heads)
    return start + at


def _send_stretch(way: _Way, first: int, manner: _Manner, heads: Sequence[PacketHeads]) -> None:
    """Send messages from ``first`` on, which are one stretch of the session's window."""
    session, mixed, count = way.session, way.mixed, len(heads)
    inflight = session.outbox.push(
        count,
        manner.qos,
        partition_id=way.partition_id,
        first_offset=mixed.base_offset + first,
        retain=manner.retain,
        identifiers=manner.identifiers,
    )
    payloads = mixed.payloads[first : first + count]
    data = join_packets(heads, packet_id_of(inflight.first_seq), payloads)
    session.context.counters.publish_sent += count
    if session.is_kept:
        session.journal.add(inflight, data)
    else:
        session.send(way.connection, data)
