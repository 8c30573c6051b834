"""As little of MQTT 3.1.1 as the load generator needs: whole packets, made beforehand.

A ``Table`` is many PUBLISH packets of one length in one piece of memory, so that sending is a
slice and receiving is arithmetic: what came divided by the length is how many, and the bytes
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
    """Encode a string: two bytes of length, then UTF-8."""
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

    Topics are equally long; a payload begins with its number (4 bytes, big-endian). ``acks``
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
        self.first_byte = 0x30 | qos << 1 | retain
        topic_at = 1 + len(varint(_rest_bytes(topics[0], qos, payload_bytes))) + 2
        self.id_at = topic_at + len(topics[0])
        self.number_at = self.id_at + (2 if qos else 0)
        packet = bytearray(self.number_at + payload_bytes)
        packet[0] = self.first_byte
        packet[1 : topic_at - 2] = varint(_rest_bytes(topics[0], qos, payload_bytes))
        packet[topic_at - 2 : topic_at] = struct.pack(">H", len(topics[0]))
        self.length = len(packet)
        data = bytearray(bytes(packet) * count)
        self._fill(data, topic_at, b"".join(topics) * (count // len(topics)))
        ids = struct.pack(f">{count}H", *(n % IDS + 1 for n in range(count)))
        if qos:
            self._fill(data, self.id_at, ids)
        numbers = struct.pack(f">{count}I", *range(count))
        self._fill(data, self.number_at, numbers)
        self.data = memoryview(bytes(data) * 2)
        self.columns = [numbers[n::_NUMBER_BYTES] * 2 for n in range(_NUMBER_BYTES)]
        self.acks = acks(ids[0::2], ids[1::2]) * 2

    def _fill(self, data: bytearray, at: int, values: bytes) -> None:
        """Write one value of equal size into each packet, ``at`` bytes from its start."""
        width = len(values) // self.count
        for column in range(width):
            data[at + column :: self.length] = values[column::width]

    def slice(self, number: int, count: int) -> memoryview:
        """Return ``count`` packets, at most a table, from the one of this number on."""
        start = number % self.count * self.length
        return self.data[start : start + count * self.length]

    def is_next(self, buffer: bytearray, end: int, number: int) -> bool:
        """Say whether ``buffer`` up to ``end`` holds exactly the packets from ``number`` on.

        Looks at the first byte and at the number of each of them.
        """
        count = end // self.length
        start = number % self.count
        return buffer[0 : end : self.length].count(self.first_byte) == count and all(
            buffer[self.number_at + n : end : self.length] == column[start : start + count]
            for n, column in enumerate(self.columns)
        )

    def numbers(self, buffer: bytearray, end: int) -> tuple[int, ...]:
        """Return the number of each packet in ``buffer`` up to ``end``."""
        count = end // self.length
        data = bytearray(count * _NUMBER_BYTES)
        for n in range(_NUMBER_BYTES):
            data[n::_NUMBER_BYTES] = buffer[self.number_at + n : end : self.length]
        return struct.unpack(f">{count}I", data)

    def acks_for(self, buffer: bytearray, end: int) -> bytes:
        """Return the PUBACKs for the packets in ``buffer`` up to ``end``, by their own ids."""
        high = buffer[self.id_at : end : self.length]
        return acks(high, buffer[self.id_at + 1 : end : self.length])


def acks(high: bytes | bytearray, low: bytes | bytearray) -> bytes:
    """Return PUBACKs for packet ids given as their upper and lower bytes."""
    data = bytearray(bytes([PUBACK, 2, 0, 0]) * len(high))
    data[2::ACK_BYTES] = high
    data[3::ACK_BYTES] = low
    return bytes(data)


def _rest_bytes(topic: bytes, qos: int, payload_bytes: int) -> int:
    return 2 + len(topic) + (2 if qos else 0) + payload_bytes
