"""Retained messages to a new subscription (section 3.3.1.3), many of them in one write.

Messages of one QoS that have nothing beside their payload take a run of packet identifiers and
one entry of the outbox; the others, and those to clients with topic aliases, leave one by one.
"""

import struct
from itertools import repeat
from typing import Final

from adapters.mqtt.delivery.at_most_once import EXPIRED, expiry_s_of, send_part
from adapters.mqtt.inflight.outbox import RETAINED, packet_id_of
from adapters.mqtt.packets.primitives import encode_varint
from adapters.mqtt.packets.properties import encode_publish_properties
from adapters.mqtt.ports import SessionPort
from adapters.mqtt.retained.store import Retained, RetainedStretch
from adapters.mqtt.subscriptions.subscription import Subscription
from adapters.mqtt.wire import NO_PROPERTIES, PublishRun, Version

_RETAINED_PUBLISH: Final = 0x31
_SHORT: Final = struct.Struct(">H")
_NO_OFFSET: Final = -1


def wants_runs(session: "SessionPort", subscription: Subscription) -> bool:
    """Return whether each message is checked on its own: for its publisher, or a topic alias."""
    connection = session.connection
    assert connection is not None
    return subscription.no_local or connection.topic_alias_maximum > 0


def send_retained_part(
    session: "SessionPort", subscription: Subscription, part: Retained
) -> None:
    """Send messages that the session is ready for and, at QoS 1 and 2, has room for."""
    if isinstance(part, RetainedStretch):
        _send_stretch(session, subscription, part)
    else:
        _send_run(session, subscription, part)


def _send_run(session: "SessionPort", subscription: Subscription, run: PublishRun) -> None:
    if subscription.no_local and run.client_id == session.client_id:
        return
    expiry_s = expiry_s_of(run, session.context.clock)
    if expiry_s == EXPIRED:
        return
    identifiers = _identifiers(subscription)
    qos = min(run.qos, subscription.qos)
    if qos:
        session.send_run(
            run,
            0,
            1,
            qos=qos,
            retain=True,
            identifiers=identifiers,
            expiry_s=expiry_s,
            partition_id=RETAINED,
        )
    else:
        send_part(session, run, 0, 1, retain=True, identifiers=identifiers)


def _send_stretch(
    session: "SessionPort", subscription: Subscription, stretch: RetainedStretch
) -> None:
    connection = session.connection
    assert connection is not None
    context = session.context
    identifiers = _identifiers(subscription)
    properties = b""
    if connection.version is Version.V5:
        properties = encode_publish_properties(
            NO_PROPERTIES._replace(subscription_identifiers=identifiers)
        )
    qos = min(stretch.qos, subscription.qos)
    packets = _Packets(stretch, qos, properties)
    # What is too large counts as delivered (MQTT-3.1.2-25).
    context.counters.too_large += packets.leave_out_above(connection.packet_bytes_max)
    count = len(packets.topics)
    if not count:
        return
    if not qos:
        if connection.out_bytes > context.receiver_bytes_max:
            context.counters.dropped += count
            return
        context.counters.publish_sent += count
        connection.send(packets.data())
        return
    inflight = session.outbox.push(
        count,
        qos,
        partition_id=RETAINED,
        first_offset=_NO_OFFSET,
        retain=True,
        identifiers=identifiers,
        topics=tuple(packets.topics),
    )
    context.counters.publish_sent += count
    data = packets.data(inflight.first_seq)
    if session.is_kept:
        session.journal.add(inflight, data)
    else:
        session.send(connection, data)


class _Packets:
    """Packets of a stretch. Packets of equal sizes share the bytes before the topic."""

    def __init__(self, stretch: RetainedStretch, qos: int, properties: bytes) -> None:
        self.topics, self._payloads = stretch.topics, stretch.payloads
        self._has_ids = qos > 0
        self._properties = properties
        self._sizes = list(zip(map(len, self.topics), map(len, self._payloads), strict=True))
        first = bytes((_RETAINED_PUBLISH | qos << 1,))
        fixed_bytes = _SHORT.size * (1 + self._has_ids) + len(properties)
        self._heads = {
            (topic_bytes, payload_bytes): first
            + encode_varint(fixed_bytes + topic_bytes + payload_bytes)
            + _SHORT.pack(topic_bytes)
            for topic_bytes, payload_bytes in set(self._sizes)
        }

    def leave_out_above(self, packet_bytes_max: int) -> int:
        """Leave out the packets above a size; return how many there are."""
        beside_bytes = len(self._properties) + _SHORT.size * self._has_ids
        large = {
            sizes
            for sizes, head in self._heads.items()
            if len(head) + sum(sizes) + beside_bytes > packet_bytes_max
        }
        if not large:
            return 0
        count = len(self._sizes)
        kept = [at for at, sizes in enumerate(self._sizes) if sizes not in large]
        self.topics = [self.topics[at] for at in kept]
        self._payloads = [self._payloads[at] for at in kept]
        self._sizes = [self._sizes[at] for at in kept]
        return count - len(kept)

    def data(self, first_seq: int = 0) -> bytes:
        """Return the packets; with QoS their identifiers are those from ``first_seq`` on."""
        count = len(self.topics)
        fields = 4 + self._has_ids
        parts = [b""] * (count * fields)
        parts[0::fields] = map(self._heads.__getitem__, self._sizes)
        parts[1::fields] = self.topics
        if self._has_ids:
            ids = map(packet_id_of, range(first_seq, first_seq + count))
            parts[2::fields] = map(_SHORT.pack, ids)
        parts[fields - 2 :: fields] = repeat(self._properties, count)
        parts[fields - 1 :: fields] = self._payloads
        return b"".join(parts)


def _identifiers(subscription: Subscription) -> tuple[int, ...]:
    return (subscription.identifier,) if subscription.identifier else ()
