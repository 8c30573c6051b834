"""The stream of a client -> packets (MQTT 5.0 section 2.1), however it is cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.mqtt.errors import ReasonCode
from adapters.mqtt.packets.framing import PacketReader
from adapters.mqtt.wire import AckRun, Connect, Packet, PacketType, Pingreq, PublishRun, Version
from tests.adapters.mqtt.raw_packets import (
    MALFORMED,
    PACKET_BYTES_MAX,
    PROTOCOL,
    connected,
    described,
    packet,
    properties,
    publish,
)

CONNECT = packet(0x10, "MQTT", b"\5\2\0\0", 0, "client")
CONNECT_3_1 = packet(0x10, "MQIsdp", b"\3\2\0\0", "client")
CONNECT_3_1_1 = packet(0x10, "MQTT", b"\4\2\0\0", "client")
SUBSCRIBE = packet(0x82, b"\0\1", 0, "a/#", 1)
UNSUBSCRIBE = packet(0xA2, b"\0\1", 0, "a/#")
PINGREQ = b"\xc0\0"
DISCONNECT = b"\xe0\0"
AUTH = packet(0xF0, 0x18, properties(21, "PLAIN"))

PACKETS = [
    publish("a", b"12"),
    publish("a", b"123", first=0x32),
    publish("b", b"12" * 100, first=0x34),
    b"\x40\2\0\1",
    b"\x40\2\0\2",
    b"\x50\2\0\3",
    b"\x62\2\0\4",
    b"\x70\2\0\5",
    b"\x40\3\0\1\x10",
    b"\x50\4\0\1\x80\0",
    SUBSCRIBE,
    UNSUBSCRIBE,
    PINGREQ,
    AUTH,
]


def after_connect(
    data: bytes, version: Version = Version.V5
) -> tuple[list[Packet], int | None]:
    reader = connected(version)
    packets = reader.receive(data)
    return packets, None if reader.error is None else reader.error.reason_code


def all_slices(reader: PacketReader, data: bytes) -> list[Packet]:
    """Return the packets of all slices that the bytes complete."""
    packets = reader.receive(data)
    while reader.is_cut:
        packets += reader.receive(b"")
    return packets


@given(
    st.lists(st.tuples(st.sampled_from(PACKETS), st.integers(1, 20)), max_size=12),
    st.data(),
)
def test_any_cut_of_the_stream_gives_the_same_packets(
    items: list[tuple[bytes, int]], data: st.DataObject
) -> None:
    stream = CONNECT + b"".join(one * times for one, times in items)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=20).map(sorted))
    whole = PacketReader(packet_bytes_max=PACKET_BYTES_MAX)
    pieces = PacketReader(packet_bytes_max=PACKET_BYTES_MAX)

    expected = described(all_slices(whole, stream))
    found = []
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += described(all_slices(pieces, stream[start:stop]))

    assert found == expected
    assert len(found) == 1 + sum(times for _, times in items)
    assert not pieces.has_partial
    assert pieces.error is whole.error is None


def test_bytes_one_by_one() -> None:
    reader = PacketReader(packet_bytes_max=PACKET_BYTES_MAX)
    stream = CONNECT + b"".join(PACKETS)

    found = []
    for index in range(len(stream)):
        found += described(reader.receive(stream[index : index + 1]))

    assert len(found) == 1 + len(PACKETS)


def test_a_large_packet_is_kept_until_it_is_there() -> None:
    reader = connected()
    one = publish("a", bytes(500_000))

    for at in range(0, len(one) - 1, 1000):
        assert reader.receive(one[at : min(at + 1000, len(one) - 1)]) == []
        assert reader.has_partial
    packets = reader.receive(one[-1:])

    assert len(packets) == 1
    assert not reader.has_partial


@pytest.mark.parametrize(
    ("data", "version"),
    [(CONNECT, 5), (CONNECT_3_1_1, 4), (CONNECT_3_1, 3)],
)
def test_connect_tells_the_version(data: bytes, version: int) -> None:
    reader = PacketReader(packet_bytes_max=PACKET_BYTES_MAX)

    (connect,) = reader.receive(data)

    assert isinstance(connect, Connect)
    assert reader.version == version


@pytest.mark.parametrize(
    "first", [publish("a"), PINGREQ, SUBSCRIBE, DISCONNECT, b"\0\0", b"\xf0"]
)
def test_the_first_packet_is_connect(first: bytes) -> None:  # MQTT-3.1.0-1
    reader = PacketReader(packet_bytes_max=PACKET_BYTES_MAX)

    assert reader.receive(first + CONNECT) == []
    assert reader.error is not None
    assert reader.error.reason_code == PROTOCOL


def test_a_second_connect_is_a_protocol_error() -> None:  # MQTT-3.1.0-2
    reader = PacketReader(packet_bytes_max=PACKET_BYTES_MAX)

    packets = reader.receive(CONNECT + PINGREQ + CONNECT)

    assert [type(one) for one in packets] == [Connect, Pingreq]
    assert reader.error is not None
    assert reader.error.reason_code == PROTOCOL


@pytest.mark.parametrize("first", [0x20, 0x90, 0xB0, 0xD0])
def test_what_servers_send_is_a_protocol_error(first: int) -> None:
    assert after_connect(bytes((first,))) == ([], PROTOCOL)


@pytest.mark.parametrize("version", [Version.V3_1, Version.V3_1_1, Version.V5])
def test_type_0_is_reserved(version: Version) -> None:
    assert after_connect(b"\0", version) == ([], MALFORMED)


@pytest.mark.parametrize("version", [Version.V3_1, Version.V3_1_1])
def test_there_is_no_auth_before_5_0(version: Version) -> None:
    assert after_connect(AUTH, version) == ([], MALFORMED)


@pytest.mark.parametrize("kind", [4, 5, 6, 7, 8, 10, 12, 14, 15])
def test_other_flags_are_malformed(kind: int) -> None:  # MQTT-2.1.3-1, 3.6.1-1, 3.8.1-1 ...
    allowed = 2 if kind in {6, 8, 10} else 0
    for flags in set(range(16)) - {allowed}:
        assert after_connect(bytes((kind << 4 | flags,))) == ([], MALFORMED)


def test_connect_with_flags_is_malformed() -> None:
    reader = PacketReader(packet_bytes_max=PACKET_BYTES_MAX)

    reader.receive(b"\x11" + CONNECT[1:])

    assert reader.error is not None
    assert reader.error.reason_code == MALFORMED


@pytest.mark.parametrize("first", [0x6A, 0x8A, 0xAA])
def test_dup_of_3_1_is_taken_where_3_1_has_it(first: int) -> None:
    body = {0x6A: b"\0\1", 0x8A: b"\0\1\0\1a\1", 0xAA: b"\0\1\0\1a"}[first]

    packets, error = after_connect(packet(first, body), Version.V3_1)

    assert len(packets) == 1
    assert error is None
    assert after_connect(packet(first, body), Version.V3_1_1) == ([], MALFORMED)


@pytest.mark.parametrize(
    "data", [b"\xc0\x80\0", b"\x82\xff\xff\xff\xff", b"\x82\xff\xff\xff\x80", b"\xc0\1\0"]
)
def test_a_bad_length_is_malformed(data: bytes) -> None:  # MQTT-1.5.5-1
    assert after_connect(data) == ([], MALFORMED)


@pytest.mark.parametrize("first", [0x10, 0x30, 0x82, 0x40, 0xC0])
def test_a_packet_above_the_maximum_is_refused_when_its_length_is_known(first: int) -> None:
    for size, code in ((97, None), (98, None), (99, ReasonCode.PACKET_TOO_LARGE)):
        reader = connected(bytes_max=100)
        if first == 0x10:
            reader.version = None

        reader.receive(bytes((first, size)))

        assert (None if reader.error is None else reader.error.reason_code) == code


def test_after_an_error_nothing_is_decoded() -> None:
    reader = connected()
    packets = reader.receive(PINGREQ + b"\0\0" + PINGREQ)
    error = reader.error

    later = reader.receive(PINGREQ)

    assert (len(packets), later) == (1, [])
    assert reader.error is error is not None


@pytest.mark.parametrize("kind", [4, 5, 6, 7])
@pytest.mark.parametrize("count", [1, 63, 64, 65, 320, 321, 1000])
def test_short_acknowledgements_are_one_run(kind: int, count: int) -> None:
    first = bytes((kind << 4 | (2 if kind == 6 else 0), 2))
    data = b"".join(first + i.to_bytes(2) for i in range(1, count + 1))

    packets, error = after_connect(data + PINGREQ)

    run = packets[0]
    assert isinstance(run, AckRun)
    assert (run.kind, list(run.packet_ids)) == (PacketType(kind), list(range(1, count + 1)))
    assert run.reason_codes is None
    assert isinstance(packets[1], Pingreq)
    assert error is None


def test_an_acknowledgement_of_0_leaves_those_before() -> None:  # MQTT-2.2.1-3
    packets, error = after_connect(b"\x40\2\0\1\x40\2\0\2\x40\2\0\0\x40\2\0\3")

    assert described(packets) == [(PacketType.PUBACK, 1, 0), (PacketType.PUBACK, 2, 0)]
    assert error == PROTOCOL
    assert after_connect(b"\x40\2\0\0") == ([], PROTOCOL)


def test_what_came_before_a_fault_in_a_run_is_returned() -> None:
    packets, error = after_connect(publish("a", b"1") * 5 + publish("#"))

    assert len(described(packets)) == 5
    assert error == ReasonCode.TOPIC_NAME_INVALID


@given(st.binary(max_size=80), st.sampled_from([None, *Version]))
def test_any_bytes_are_packets_or_an_error(data: bytes, version: Version | None) -> None:
    reader = PacketReader(packet_bytes_max=PACKET_BYTES_MAX)
    reader.version = version

    reader.receive(data)


@given(st.sampled_from(PACKETS), st.integers(0, 300), st.integers(0, 255))
def test_a_changed_byte_is_a_packet_or_an_error(one: bytes, at: int, byte: int) -> None:
    changed = bytearray(one * 3)
    changed[at % len(changed)] = byte

    after_connect(bytes(changed))


LIKE = [
    publish("a", b"12"),
    publish("a/b", b"12" * 100),
    publish("a", b"123", first=0x32),
    publish("a", b"", first=0x32),
    publish("b", b"12" * 100, first=0x34),
    publish("b", b"1", first=0x3B),
    publish("c", b"1", first=0x33, section=properties(3, "text/plain")),
    publish("d", b"12", section=properties(35, b"\0\1")),
    publish("", b"12", section=properties(35, b"\0\1")),
    publish("e", b"12", section=properties(2, b"\0\0\0\x3c")),
]


def bytes_of(one: Packet) -> bytes | None:
    return one.data if isinstance(one, PublishRun) else None


@given(
    st.sampled_from(LIKE),
    st.sampled_from(LIKE),
    st.integers(0, 300),
    st.integers(0, 255),
    st.binary(max_size=3),
)
def test_what_is_remembered_of_packets_changes_nothing(
    one: bytes, other: bytes, at: int, byte: int, more: bytes
) -> None:
    reader = connected(Version.V5)
    for _ in range(3):
        known = reader.receive(one)
        assert described(known) == described(after_connect(one)[0])
    data = bytearray(other + more)
    data[at % len(data)] = byte

    packets = reader.receive(bytes(data))

    fresh = connected(Version.V5)
    expected = fresh.receive(bytes(data))
    assert described(packets) == described(expected)
    assert [bytes_of(one) for one in packets] == [bytes_of(one) for one in expected]
    assert reader.has_partial == fresh.has_partial
    assert str(reader.error) == str(fresh.error)


def test_a_packet_like_the_last_is_bounded_too() -> None:
    reader = PacketReader(packet_bytes_max=64)
    reader.receive(CONNECT)
    for _ in range(3):
        reader.receive(publish("a", b"12"))

    assert reader.receive(publish("a", bytes(60))) == []

    assert reader.error is not None
    assert reader.error.reason_code is ReasonCode.PACKET_TOO_LARGE


def test_a_length_that_is_not_minimal_is_malformed_in_a_packet_like_the_last() -> None:
    reader = connected(Version.V5)
    one = publish("a", b"12")
    for _ in range(3):
        reader.receive(one)

    assert reader.receive(one[:1] + bytes((one[1] | 0x80, 0)) + one[2:]) == []

    assert reader.error is not None  # MQTT-1.5.5-1
    assert reader.error.reason_code is ReasonCode.MALFORMED_PACKET
