"""As little of MQTT 3.1.1 as the load generator needs: whole packets, made beforehand.

A ``Table`` is many PUBLISH packets of one length in one piece of memory, so that sending is a
slice and receiving is arithmetic: what came divided by the length is how many, and the octets
at one place of all of them are one strided slice, taken and compared at C speed.
"""

import struct
from collections.abc import Sequence
from typing import Final

CONNACK_BYTES: Final = 4
SUBACK_BYTES: Final = 4  # and one more for each filter
ACK_BYTES: Final = 4
PUBACK: Final = 0x40
DISCONNECT: Final = b"\xe0\x00"
IDS: Final = 50_000  # packet ids run from 1 to this, then again; sizes of tables divide by it
_NUMBER_BYTES: Final = 4


def varint(value: int) -> bytes:
    """Encode a Variable Byte Integer (MQTT 3.1.1 section 2.2.3)."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def text(value: bytes) -> bytes:
    """Encode a string: two octets of length, then UTF-8."""
    return struct.pack(">H", len(value)) + value


def connect(client_id: str, *, clean: bool = True) -> bytes:
    """Return CONNECT of MQTT 3.1.1 without keep alive."""
    flags = 2 if clean else 0
    body = text(b"MQTT") + bytes([4, flags, 0, 0]) + text(client_id.encode())
    return b"\x10" + varint(len(body)) + body


def subscribe(topic_filters: Sequence[bytes], *, qos: int) -> bytes:
    """Return SUBSCRIBE with packet id 1."""
    filters = b"".join(text(one) + bytes([qos]) for one in topic_filters)
    return b"\x82" + varint(2 + len(filters)) + b"\x00\x01" + filters


class Table:
    """One PUBLISH for each of ``numbers``, in order, over ``topics`` in turn, ids in turn.

    Topics are equally long; a payload begins with its number (4 octets, big-endian). ``acks``
    are the PUBACKs for all of it. Both are there twice over, so that no slice need wrap.
    """

    def __init__(
        self,
        topics: Sequence[bytes],
        *,
        count: int,
        qos: int,
        payload_bytes: int = 64,
        retain: bool = False,
    ) -> None:
        assert len({len(topic) for topic in topics}) == 1, "topics of one length"
        assert count % len(topics) == 0, "all topics equally often"
        assert count < IDS or count % IDS == 0, "ids go round with the table"
        self.count = count
        self.qos = qos
        self.first_octet = 0x30 | qos << 1 | retain
        topic_at = 1 + len(varint(_rest_bytes(topics[0], qos, payload_bytes))) + 2
        self.id_at = topic_at + len(topics[0])
        self.number_at = self.id_at + (2 if qos else 0)
        packet = bytearray(self.number_at + payload_bytes)
        packet[0] = self.first_octet
        packet[1 : topic_at - 2] = varint(_rest_bytes(topics[0], qos, payload_bytes))
        packet[topic_at - 2 : topic_at] = struct.pack(">H", len(topics[0]))
        self.length = len(packet)
        octets = bytearray(bytes(packet) * count)
        self._fill(octets, topic_at, b"".join(topics) * (count // len(topics)))
        ids = struct.pack(f">{count}H", *(n % IDS + 1 for n in range(count)))
        if qos:
            self._fill(octets, self.id_at, ids)
        numbers = struct.pack(f">{count}I", *range(count))
        self._fill(octets, self.number_at, numbers)
        self.octets = memoryview(bytes(octets) * 2)
        self.columns = [numbers[n::_NUMBER_BYTES] * 2 for n in range(_NUMBER_BYTES)]
        self.acks = acks(ids[0::2], ids[1::2]) * 2

    def _fill(self, octets: bytearray, at: int, values: bytes) -> None:
        """Write one value of equal size into each packet, ``at`` octets from its start."""
        width = len(values) // self.count
        for column in range(width):
            octets[at + column :: self.length] = values[column::width]

    def slice(self, number: int, count: int) -> memoryview:
        """Return ``count`` packets, at most a table, from the one of this number on."""
        start = number % self.count * self.length
        return self.octets[start : start + count * self.length]

    def is_next(self, buffer: bytearray, end: int, number: int) -> bool:
        """Say whether ``buffer`` up to ``end`` holds exactly the packets from ``number`` on.

        Looks at the first octet and at the number of each of them.
        """
        count = end // self.length
        start = number % self.count
        return buffer[0 : end : self.length].count(self.first_octet) == count and all(
            buffer[self.number_at + n : end : self.length] == column[start : start + count]
            for n, column in enumerate(self.columns)
        )

    def numbers(self, buffer: bytearray, end: int) -> tuple[int, ...]:
        """Return the number of each packet in ``buffer`` up to ``end``."""
        count = end // self.length
        octets = bytearray(count * _NUMBER_BYTES)
        for n in range(_NUMBER_BYTES):
            octets[n::_NUMBER_BYTES] = buffer[self.number_at + n : end : self.length]
        return struct.unpack(f">{count}I", octets)

    def acks_for(self, buffer: bytearray, end: int) -> bytes:
        """Return the PUBACKs for the packets in ``buffer`` up to ``end``, by their own ids."""
        high = buffer[self.id_at : end : self.length]
        return acks(high, buffer[self.id_at + 1 : end : self.length])


def acks(high: bytes | bytearray, low: bytes | bytearray) -> bytes:
    """Return PUBACKs for packet ids given as their upper and lower octets."""
    octets = bytearray(bytes([PUBACK, 2, 0, 0]) * len(high))
    octets[2::ACK_BYTES] = high
    octets[3::ACK_BYTES] = low
    return bytes(octets)


def _rest_bytes(topic: bytes, qos: int, payload_bytes: int) -> int:
    return 2 + len(topic) + (2 if qos else 0) + payload_bytes
