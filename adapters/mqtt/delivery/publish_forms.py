"""Runs -> PUBLISH packets, encoded once per form and used for every receiver of that form.

The hot path out. A form is what receivers with the same version, QoS and flags see of a run.
Packets of equal size share one head, so that a run is joined without a loop in Python.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, repeat
from struct import iter_unpack, pack
from typing import Final

from adapters.mqtt.packets.primitives import encode_binary, encode_varint
from adapters.mqtt.packets.properties import encode_publish_properties
from adapters.mqtt.wire import NO_PROPERTIES, PACKET_ID_MAX, PublishRun, Version

FORMS_MAX: Final = 64
"""Forms kept with a run; more (every receiver its own identifiers) are made each time."""

HEADS_MAX: Final = 256
"""Sizes of payloads whose packets' beginnings are kept."""

_PUBLISH: Final = 0x30
_DUP: Final = 0x08


class PublishForm:
    """A run as receivers of one kind see it: ``count`` packets.

    ``size_bytes`` is that of all of them, ``largest_bytes`` that of the largest (what a
    client's Maximum Packet Size is compared with; ``packet_bytes`` tells it one by one).
    """

    __slots__ = (
        "_data",
        "_heads",
        "_id_bytes",
        "_payloads",
        "_sizes",
        "_tail",
        "count",
        "largest_bytes",
        "size_bytes",
    )

    def __init__(
        self,
        payloads: list[bytes],
        *,
        flags: int,
        topic: bytes,
        properties: bytes,
        data: bytes | None = None,
    ) -> None:
        """``flags`` are QoS and RETAIN; ``topic`` and ``properties`` begin with their length.

        ``bytes`` are the packets where they are there already.
        """
        self._id_bytes = 2 if flags >= 2 else 0  # noqa: PLR2004 - QoS is bits 1 and 2
        self._payloads = payloads
        self._tail = properties
        self._data = data
        self._sizes = sizes = list(map(len, payloads))
        first = bytes((_PUBLISH | flags,))
        common_bytes = len(topic) + self._id_bytes + len(properties)
        self.count = count = len(payloads)
        # From a payload's size to all of its packet up to the end of the topic.
        if count == 1:  # where topics alternate, runs are short: a third of the cost
            size = sizes[0]
            self._heads = {size: first + encode_varint(common_bytes + size) + topic}
        else:
            self._heads = {
                size: first + encode_varint(common_bytes + size) + topic for size in set(sizes)
            }
        if len(self._heads) == 1:
            self.largest_bytes = self._packet_bytes(sizes[0])
            self.size_bytes = count * self.largest_bytes
        else:
            self.largest_bytes = self._packet_bytes(max(self._heads))
            self.size_bytes = sum(map(self._packet_bytes, sizes))

    def packet_bytes(self, index: int) -> int:
        """Return the bytes of one packet."""
        return self._packet_bytes(self._sizes[index])

    def _packet_bytes(self, size_bytes: int) -> int:
        return len(self._heads[size_bytes]) + self._id_bytes + len(self._tail) + size_bytes

    def data(self) -> bytes:
        """Return all packets of a form with QoS 0; joined at the first call."""
        assert not self._id_bytes, "packets with QoS need identifiers"
        if self._data is None:
            self._data = self._join(0, self.count)
        return self._data

    def part(self, start: int, stop: int) -> bytes:
        """Return packets ``start`` to ``stop`` (indices) of a form with QoS 0."""
        return self.data() if stop - start == self.count else self._join(start, stop)

    def _join(self, start: int, stop: int) -> bytes:
        parts = self._parts(self._heads, start, stop, fields=3)
        parts[1::3] = repeat(self._tail, stop - start)
        return b"".join(parts)

    def with_ids(
        self, first_packet_id: int, start: int, stop: int, *, dup: bool = False
    ) -> bytes:
        """Return packets ``start`` to ``stop`` (indices) of a form with QoS 1 or 2.

        Their identifiers run on from ``first_packet_id``, after 65,535 from 1 again; there are
        at most 65,535 of them at a time. ``dup`` is set when they are sent again
        (MQTT-3.3.1-1).
        """
        count = stop - start
        assert self._id_bytes, "packets with QoS 0 have no identifiers"
        assert 0 <= start <= stop <= self.count
        assert count <= PACKET_ID_MAX
        heads = self._heads
        if dup:
            heads = {size: bytes((head[0] | _DUP,)) + head[1:] for size, head in heads.items()}
        if count == 1:
            head, packet_id = heads[self._sizes[start]], _packet_ids()[first_packet_id - 1]
            return b"".join((head, packet_id, self._tail, self._payloads[start]))
        parts = self._parts(heads, start, stop, fields=4)
        parts[1::4] = _ids_from(first_packet_id, count)
        parts[2::4] = repeat(self._tail, count)
        return b"".join(parts)

    def _parts(
        self, heads: dict[int, bytes], start: int, stop: int, *, fields: int
    ) -> list[bytes]:
        """Return the pieces of the packets with heads (first) and payloads (last) filled in."""
        count = stop - start
        parts = [b""] * (count * fields)
        if len(heads) == 1:
            parts[0::fields] = repeat(heads[self._sizes[0]], count)
        else:
            parts[0::fields] = map(heads.__getitem__, self._sizes[start:stop])
        parts[fields - 1 :: fields] = self._payloads[start:stop]
        return parts


class PacketHeads(dict[int, bytes]):
    """Beginnings of packets of one topic and form, by the size of the payload in bytes.

    ``tail`` are the properties, ``common_bytes`` the bytes of topic and properties.
    """

    def __init__(self, flags: int, topic: bytes, tail: bytes) -> None:
        super().__init__()
        self.tail = tail
        self.common_bytes = len(topic) + len(tail)
        self._first = bytes((_PUBLISH | flags,))
        self._topic = topic
        self._id_bytes = 2 if flags >= 2 else 0  # noqa: PLR2004 - QoS is bits 1 and 2

    def __missing__(self, size_bytes: int) -> bytes:
        length = encode_varint(self.common_bytes + self._id_bytes + size_bytes)
        head = self._first + length + self._topic
        if len(self) < HEADS_MAX:
            self[size_bytes] = head
        return head


def heads_of(
    run: PublishRun,
    version: Version,
    qos: int,
    *,
    retain: bool,
    identifiers: tuple[int, ...],
) -> PacketHeads:
    """Return how packets of a run's topic and form begin; kept with the run, as ``form_of``."""
    is_v5 = version == Version.V5
    key = (is_v5, qos, retain, identifiers)
    forms = run.forms
    if forms is None:
        forms = run.forms = {}
    heads = forms.get(key)
    if heads is None:
        tail = _properties(run, identifiers, None, 0) if is_v5 else b""
        heads = PacketHeads(qos << 1 | retain, encode_binary(run.topic), tail)
        if len(forms) < FORMS_MAX:
            forms[key] = heads
    assert isinstance(heads, PacketHeads)
    return heads


def join_packets(
    heads: Sequence[PacketHeads], first_packet_id: int, payloads: Sequence[bytes]
) -> bytes:
    """Return packets of a payload and the beginning for it each; see ``with_ids``."""
    count = len(payloads)
    assert count <= PACKET_ID_MAX
    parts = [b""] * (count * 4)
    parts[0::4] = [head[len(payload)] for head, payload in zip(heads, payloads, strict=True)]
    parts[1::4] = _ids_from(first_packet_id, count)
    parts[2::4] = [head.tail for head in heads]
    parts[3::4] = payloads
    return b"".join(parts)


def join_at_most_once(heads: Sequence[PacketHeads], payloads: Sequence[bytes]) -> bytes:
    """Return packets of QoS 0 of a payload and the beginning for it each."""
    parts = [b""] * (len(payloads) * 3)
    parts[0::3] = [head[len(payload)] for head, payload in zip(heads, payloads, strict=True)]
    parts[1::3] = [head.tail for head in heads]
    parts[2::3] = payloads
    return b"".join(parts)


def _ids_from(first_packet_id: int, count: int) -> list[bytes]:
    table, at = _packet_ids(), first_packet_id - 1
    ids = table[at : at + count]
    if len(ids) < count:
        ids += table[: count - len(ids)]
    return ids


@lru_cache(1)
def _packet_ids() -> list[bytes]:
    """Return the bytes of all packet identifiers, in order (3 MiB, made at the first use)."""
    data = pack(f">{PACKET_ID_MAX}H", *range(1, PACKET_ID_MAX + 1))
    return list(chain.from_iterable(iter_unpack("2s", data)))


def form_of(  # noqa: PLR0913 - what a receiver's kind consists of
    run: PublishRun,
    *,
    version: Version,
    qos: int,
    retain: bool,
    identifiers: tuple[int, ...] = (),
    expiry_s: int | None = None,
    alias: int = 0,
    with_topic: bool = True,
) -> PublishForm:
    """Return ``run`` as receivers of one kind see it; kept with the run.

    ``identifiers`` are the subscriptions' (MQTT-3.3.4-3); ``expiry_s`` is what is left of the
    Message Expiry Interval (MQTT-3.3.2-6), None leaves it as it was published. ``alias`` 0 is
    none; without ``with_topic`` the alias alone names the topic. 3.x has no properties: there
    the last four have no say. The publisher's alias never goes on (MQTT-3.3.2-11), nor does
    DUP (MQTT-3.3.1-3).
    """
    is_v5 = version == Version.V5
    key = (
        (is_v5, qos, retain, identifiers, expiry_s, alias, with_topic)
        if is_v5
        else (is_v5, qos, retain)
    )
    forms = run.forms
    if forms is None:
        forms = run.forms = {}
    form = forms.get(key)
    if form is None:
        properties = _properties(run, identifiers, expiry_s, alias) if is_v5 else b""
        is_as_it_came = (
            run.data is not None
            and not (qos or retain or identifiers or alias)
            and expiry_s is None
            and is_v5 == (run.version == Version.V5)
        )
        form = PublishForm(
            run.payloads,
            flags=qos << 1 | retain,
            topic=encode_binary(run.topic if with_topic or not is_v5 else b""),
            properties=properties,
            data=run.data if is_as_it_came else None,
        )
        if len(forms) < FORMS_MAX:
            forms[key] = form
    assert isinstance(form, PublishForm)
    return form


def _properties(
    run: PublishRun, identifiers: tuple[int, ...], expiry_s: int | None, alias: int
) -> bytes:
    """Return the properties as they leave, with their length."""
    if run.properties is NO_PROPERTIES and not (identifiers or alias) and expiry_s is None:
        return b"\0"
    properties = run.properties._replace(
        topic_alias=alias or None, subscription_identifiers=identifiers
    )
    if expiry_s is not None:
        properties = properties._replace(message_expiry_interval=expiry_s)
    return encode_publish_properties(properties)
