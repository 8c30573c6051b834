"""The last retained message of each topic, kept in the internal stream ``__mqtt_retained``.

The key is the topic name. The value, integers big-endian:

    version u8 = 0, flags u8 (bits 0 and 1: QoS; bit 2: expiry, bit 3: properties, bit 4:
    publisher follow), time of the publish i64 (unix ms), [expiry i64 (unix ms)],
    [length u32, properties as in PUBLISH without what belongs to one hop and the expiry
    interval], [length u16, publisher's client identifier (UTF-8)], payload

Values stay encoded in memory, and names are shared between the stream and the index: a topic
costs some 165 bytes beside its name and payload.
"""

import asyncio
import struct
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from adapters.mqtt.config import MqttConfig
from adapters.mqtt.contribution import RETAINED_TOPIC
from adapters.mqtt.packets.properties import (
    decode_publish_properties,
    encode_publish_properties,
)
from adapters.mqtt.wire import NO_PROPERTIES, MixedTopicPublishes, PublishRun
from features.expiry import NEVER, is_expired
from features.expiry import expires_at_unix_ms as deadline_of
from features.retained import RetainedTopics
from gateway.broker import Broker
from gateway.clock import Clock
from gateway.coalescer import Coalescer, Part
from gateway.errors import InvalidRecord, Overloaded
from gateway.sharded_stream import ShardedStream, ShardRule
from gateway.storage import OnDone
from gateway.streams import Item
from gateway.topics.manager import TopicManager

SWEPT_PER_CALL_MAX: Final = 2_048
"""Messages that one call of ``sweep`` looks at: about 2 ms."""
PUBLISHERS_CACHED_MAX: Final = 1_024
INDEXED_PER_TURN: Final = 1_000

_VERSION: Final = 0
_HEAD: Final = struct.Struct(">BBq")
_TIME: Final = struct.Struct(">q")
_LONG: Final = struct.Struct(">I")
_SHORT: Final = struct.Struct(">H")
_QOS_MASK: Final = 0x03
_EXPIRY_MASK: Final = 0x04
_PROPERTIES_MASK: Final = 0x08
_PUBLISHER_MASK: Final = 0x10
_ANY_VALUE: Final = b"\0\1"  # of QoS 1, for the shard of a topic
_RARE_MASK: Final = _EXPIRY_MASK | _PROPERTIES_MASK


class RetainedStretch(NamedTuple):
    """Messages in order of topics, one of each, of one QoS; none has properties or expires."""

    topics: list[bytes]
    payloads: list[bytes]
    qos: int


Retained = PublishRun | RetainedStretch


class RetainedStore:
    """Reads from memory; writes go beside the message itself, in one append."""

    def __init__(self, stream: ShardedStream, clock: Clock, config: MqttConfig) -> None:
        """Take a stream that is loaded, as far as shards are this node's."""
        self.stream = stream
        stream.on_undone = self._follow
        self._values = stream.values
        self._clock = clock
        self._count_max = config.retained_max
        self._bytes_max = config.retained_bytes_max
        self._topics = RetainedTopics(stream.values)
        self._swept = b""  # up to which topic
        self._is_loading = False  # then the index lacks some of what the stream holds

    @classmethod
    async def open(
        cls,
        broker: Broker,
        topics: TopicManager,
        clock: Clock,
        coalescer: Coalescer,
        config: MqttConfig,
        *,
        rule: ShardRule | None = None,
    ) -> "RetainedStore":
        """Return the node's retained messages, loaded. Errors: as ``InternalStream.load``.

        ``rule`` says the shard of the topic's partition, beside which the message is kept.
        """
        stream = await ShardedStream.open(
            RETAINED_TOPIC, broker, topics, clock, coalescer=coalescer, rule=rule
        )
        await stream.load()
        return cls(stream, clock, config)

    # --- ShardState

    @property
    def open_shards(self) -> Collection[int]:
        """See ``ShardState``."""
        return self.stream.open_shards

    def quiesce_shards(self, shards: Collection[int]) -> None:
        """See ``ShardState``: all that was put is with the coalescer."""

    def close_shards(self, shards: Collection[int]) -> None:
        """See ``ShardState``."""
        if not self.stream.open_shards.isdisjoint(shards):
            for topic, _ in self.stream.items_of(shards):
                self._topics.remove(topic)
        self.stream.close_shards(shards)

    async def load_shards(self, shards: Collection[int]) -> None:
        """See ``ShardState``."""
        self._is_loading = True
        try:
            await self.stream.load_shards(shards)
            for at, (topic, _) in enumerate(self.stream.items_of(shards), 1):
                if topic in self._values:  # it may have been removed meanwhile
                    self._topics.put(topic)
                if at % INDEXED_PER_TURN == 0:
                    await asyncio.sleep(0)
        finally:
            self._is_loading = False

    def is_here(self, topic: bytes) -> bool:
        """Return whether this node keeps the retained message of a topic, if there is one."""
        return self.stream.is_here(self.stream.shard_of(topic, _ANY_VALUE))

    def __len__(self) -> int:
        """Count what is retained, with what has expired and is not swept yet."""
        return len(self._topics)

    @property
    def size_bytes(self) -> int:
        """Bytes of all names and values: what ``retained_bytes_max`` bounds."""
        return self.stream.live_bytes

    # --- reading

    def get(self, topic: bytes) -> PublishRun | None:
        """Return the retained message of a topic unless it has expired.

        Its ``expires_at_unix_ms`` says until when it may be sent; the properties have no expiry
        interval. ``retain`` is set, ``client_id`` is the publisher's.
        """
        value = self._values.get(topic)
        return None if value is None else _run_of(topic, value, self._clock)

    def match(
        self,
        topic_filter: str,
        *,
        after: bytes = b"",
        count_max: int,
        bytes_max: int,
        as_runs: bool = False,
    ) -> tuple[list[Retained], bytes | None]:
        """Return retained messages by filter, in order of topics, and where to go on.

        ``after`` is empty at first, then what the call before returned; None is the end. There
        may be none and yet more to come. It ends after the message whose topic and payload
        reach ``bytes_max``. With ``as_runs`` each is a run, which knows its publisher; else
        only those are that have properties or expire.
        """
        found, next_after = self._topics.match(topic_filter, after=after, count_max=count_max)
        values = self._values
        parts: list[Retained] = []
        stretch: RetainedStretch | None = None
        size_bytes = 0
        for topic in found:
            value = values[topic]
            flags = value[1]
            if as_runs or flags & _RARE_MASK or value[0] != _VERSION:
                run = _run_of(topic, value, self._clock)
                if run is None:
                    continue
                stretch = None
                parts.append(run)
                payload = run.payloads[0]
            else:
                payload = value[_plain_payload_at(value) :]
                qos = flags & _QOS_MASK
                if stretch is None or stretch.qos != qos:
                    stretch = RetainedStretch([], [], qos)
                    parts.append(stretch)
                stretch.topics.append(topic)
                stretch.payloads.append(payload)
            size_bytes += len(topic) + len(payload)
            if size_bytes >= bytes_max and topic is not found[-1]:
                return parts, topic
        return parts, next_after

    # --- writing

    def items(
        self, run: PublishRun, now_unix_ms: int, *, expires_at_unix_ms: int | None = None
    ) -> list[Item]:
        """Return what ``put`` needs to keep the last message of a run with RETAIN set.

        An empty payload removes the topic (MQTT-3.3.1-6), as does one that is expired on
        arrival. ``expires_at_unix_ms`` is what to store; without it, what the run says. Error:
        ``Overloaded`` when a bound of the config is reached; nothing of the run may then be kept
        as retained.
        """
        payload = run.payloads[-1]
        topic = run.topic
        expiry_unix_ms = expires_at_unix_ms
        if expiry_unix_ms is None:
            expiry_unix_ms = run.expires_at_unix_ms or deadline_of(
                now_unix_ms, run.properties.message_expiry_interval
            )
        if not payload or (expiry_unix_ms and is_expired(expiry_unix_ms, now_unix_ms)):
            return [(topic, None)]
        value = _encode(run, payload, expiry_unix_ms, now_unix_ms)
        self._check_room(topic, value)
        return [(topic, value)]

    def items_of(self, mixed: MixedTopicPublishes, now_unix_ms: int) -> list[Item]:
        """Return the same for the messages of mixed topics.

        Error: ``Overloaded`` when a bound may be reached by one of them: that is for ``items``
        to say of each.
        """
        front = _encode(mixed.like, b"", NEVER, now_unix_ms)
        items: list[Item] = [
            (topic, front + payload if payload else None)
            for topic, payload in zip(mixed.topics, mixed.payloads, strict=True)
        ]
        values = self._values
        more_count = more_bytes = 0
        for topic, value in items:
            before = values.get(topic)
            more_count += value is not None and before is None
            more_bytes += max(0, _size_of(topic, value) - _size_of(topic, before))
        self._check_bounds(more_count, more_bytes)
        return items

    def put(
        self, items: Sequence[Item], on_done: OnDone, *, beside: Sequence[Part] = ()
    ) -> None:
        """Keep items and append what lies ``beside`` them; see ``InternalStream.put``.

        Readers find them at once; when ``on_done`` gets an error, all is as before.
        """
        self.stream.put(items, on_done, beside=beside)
        self._follow(items)

    def sweep(self, on_done: OnDone) -> int:
        """Look at the next messages in order; remove those that have expired.

        Return how many go; ``on_done`` runs when there are any. At the end it begins anew, so
        that each is looked at in turn; until then an expired one only takes its room. Errors:
        as ``InternalStream.put``.
        """
        topics = self._topics.after(self._swept, count_max=SWEPT_PER_CALL_MAX)
        self._swept = topics[-1] if len(topics) == SWEPT_PER_CALL_MAX else b""
        now_unix_ms = self._clock.steady_unix_ms()
        gone: list[Item] = []
        for topic in topics:
            value = self._values.get(topic)
            if value is not None and is_expired(_expiry_of(value, self._clock), now_unix_ms):
                gone.append((topic, None))
        if gone:
            self.put(gone, on_done)
        return len(gone)

    def _check_room(self, topic: bytes, value: bytes) -> None:
        before = self._values.get(topic)
        more_bytes = _size_of(topic, value) - _size_of(topic, before)
        self._check_bounds(int(before is None), more_bytes)

    def _check_bounds(self, more_count: int, more_bytes: int) -> None:
        if more_count > 0 and len(self._values) + more_count > self._count_max:
            raise Overloaded(f"retained_max: {self._count_max} topics have a retained message")
        if more_bytes > 0 and self.stream.live_bytes + more_bytes > self._bytes_max:
            raise Overloaded(f"retained_bytes_max: more than {self._bytes_max} bytes")

    def _follow(self, items: Sequence[Item]) -> None:
        """Bring the index of topics up to what the stream holds."""
        if len(items) == 1 and not self._is_loading:
            # Both held the same names before, so that their numbers tell what has become of it.
            more = len(self._values) - len(self._topics)
            if more > 0:
                self._topics.add(items[0][0])
            elif more < 0:
                self._topics.remove(items[0][0])
            return
        if len(self._values) == len(self._topics) and all(
            value is not None for _, value in items
        ):
            return  # nothing is gone, so nothing has come
        for topic, _ in items:
            if topic not in self._values:
                self._topics.remove(topic)
            else:
                self._topics.put(topic)


def qos_of(value: bytes) -> int:
    """Return the QoS of a stored message."""
    return value[1] & _QOS_MASK


def _size_of(topic: bytes, value: bytes | None) -> int:
    return 0 if value is None else len(topic) + len(value)


def _encode(run: PublishRun, payload: bytes, expiry_unix_ms: int, now_unix_ms: int) -> bytes:
    flags = run.qos
    publisher = b""
    if run.client_id:
        publisher = _publisher_data(run.client_id)
        flags |= _PUBLISHER_MASK
    if expiry_unix_ms == NEVER and run.properties is NO_PROPERTIES:
        return _HEAD.pack(_VERSION, flags, now_unix_ms) + publisher + payload
    parts = [b"", publisher, payload]
    kept = run.properties._replace(
        message_expiry_interval=None, topic_alias=None, subscription_identifiers=()
    )
    if kept != NO_PROPERTIES:
        properties = encode_publish_properties(kept)
        flags |= _PROPERTIES_MASK
        parts[1:1] = (_LONG.pack(len(properties)), properties)
    if expiry_unix_ms != NEVER:
        flags |= _EXPIRY_MASK
        parts.insert(1, _TIME.pack(expiry_unix_ms))
    parts[0] = _HEAD.pack(_VERSION, flags, now_unix_ms)
    return b"".join(parts)


@lru_cache(PUBLISHERS_CACHED_MAX)
def _publisher_data(client_id: str) -> bytes:
    publisher = client_id.encode()
    return _SHORT.pack(len(publisher)) + publisher


def _plain_payload_at(value: bytes) -> int:
    """Return where the payload begins in a value without expiry and properties."""
    if not value[1] & _PUBLISHER_MASK:
        return _HEAD.size
    begin = _HEAD.size + _SHORT.size
    return begin + (value[_HEAD.size] << 8 | value[_HEAD.size + 1])


def _expiry_of(value: bytes, clock: Clock) -> int:
    """Return when a value expires, by steady time."""
    if not value[1] & _EXPIRY_MASK:
        return NEVER
    _, _, stamped_unix_ms = _HEAD.unpack_from(value)
    (expiry_unix_ms,) = _TIME.unpack_from(value, _HEAD.size)
    return max(clock.steady_deadline(expiry_unix_ms, stamped_unix_ms), 1)  # 0 would be never


def _run_of(topic: bytes, value: bytes, clock: Clock) -> PublishRun | None:
    """Return the message, or None when it has expired.

    Error: ``InvalidRecord`` for a version that a later release wrote.
    """
    version, flags, _ = _HEAD.unpack_from(value)
    if version != _VERSION:
        raise InvalidRecord(f"a retained message has version {version}, {_VERSION} is known")
    expiry_unix_ms = _expiry_of(value, clock)
    if expiry_unix_ms and is_expired(expiry_unix_ms, clock.steady_unix_ms()):
        return None
    at = _HEAD.size
    properties = NO_PROPERTIES
    client_id = ""
    if flags & _EXPIRY_MASK:
        at += _TIME.size
    if flags & _PROPERTIES_MASK:
        begin = at + _LONG.size
        at = begin + _LONG.unpack_from(value, at)[0]
        properties = decode_publish_properties(value[begin:at])
    if flags & _PUBLISHER_MASK:
        begin = at + _SHORT.size
        at = begin + _SHORT.unpack_from(value, at)[0]
        client_id = value[begin:at].decode()
    run = PublishRun(
        topic,
        [value[at:]],
        qos=flags & _QOS_MASK,
        retain=True,
        properties=properties,
        client_id=client_id,
    )
    run.expires_at_unix_ms = expiry_unix_ms
    return run
