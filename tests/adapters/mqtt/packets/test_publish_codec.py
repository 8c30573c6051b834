"""PUBLISH of one read -> runs (MQTT 5.0 section 3.3)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.mqtt.errors import MqttError, ReasonCode
from adapters.mqtt.packets.publish_codec import decode_publishes
from adapters.mqtt.wire import NO_PROPERTIES, Packet, PublishRun, Version
from tests.adapters.mqtt.raw_packets import (
    MALFORMED,
    PROTOCOL,
    described,
    properties,
    publish,
    refused,
)

VERSIONS = pytest.mark.parametrize("version", [Version.V3_1_1, Version.V5])


def decoded(data: bytes, version: Version = Version.V5) -> list[PublishRun]:
    packets: list[Packet] = []
    assert decode_publishes(data, 0, version, packets) == len(data)
    runs = [one for one in packets if isinstance(one, PublishRun)]
    assert len(runs) == len(packets)
    return runs


def section_of(version: Version) -> bytes:
    return b"\0" if version == Version.V5 else b""


@VERSIONS
@pytest.mark.parametrize("first", [0x30, 0x31, 0x32, 0x34, 0x3A, 0x3D])
@pytest.mark.parametrize("sizes", [[5] * 200, [5, 6, 7] * 70, [5] * 40 + [6] * 40, [0] * 30])
def test_packets_that_differ_in_payload_and_identifier_are_one_run(
    version: Version, first: int, sizes: list[int]
) -> None:
    payloads = [bytes((i & 255,)) * size for i, size in enumerate(sizes)]
    section = section_of(version)
    data = b"".join(
        publish("a/b", one, first=first, packet_id=i + 1, section=section)
        for i, one in enumerate(payloads)
    )

    (run,) = decoded(data, version)

    assert run.topic == b"a/b"
    assert run.payloads == payloads
    assert list(run.packet_ids) == (list(range(1, len(sizes) + 1)) if first & 6 else [])
    assert (run.qos, run.retain, run.dup) == (first >> 1 & 3, bool(first & 1), bool(first & 8))
    assert run.data == (data if first == 0x30 else None)
    assert run.version == version


@pytest.mark.parametrize(
    "other",
    [
        publish("a/c", b"xxxxx"),
        publish("a/b", b"xxxxx", first=0x31),
        publish("a/b", b"xxxxx", first=0x32),
        publish("a/b", b"x", section=properties(1, 1)),
    ],
)
@pytest.mark.parametrize("count", [2, 5, 16, 17, 100])
def test_another_topic_flag_or_property_ends_the_run(other: bytes, count: int) -> None:
    same = publish("a/b", b"yyyyy")

    runs = decoded(same * count + other + same * count)

    assert [len(run.payloads) for run in runs] == [count, 1, count]
    assert runs[0].data == same * count


def test_properties_of_a_run_are_compared_to_their_end() -> None:
    one = publish("a", b"xy", section=properties(3, "a"))
    other = publish("a", b"xy", section=properties(3, "b"))

    runs = decoded(one * 20 + other * 20)

    assert [run.properties.content_type for run in runs] == ["a", "b"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0x30, 0x32, 0x3B]),
            st.sampled_from(["a", "bb", "c/d"]),
            st.sampled_from([b"\0", properties(1, 1), properties(35, b"\0\1")]),
            st.binary(max_size=3) | st.just(bytes(130)),
            st.integers(1, 65_535),
            st.integers(1, 30),
        ),
        max_size=20,
    )
)
def test_runs_have_what_the_packets_one_by_one_have(
    items: list[tuple[int, str, bytes, bytes, int, int]],
) -> None:
    packets = [
        publish(topic, payload, first=first, packet_id=packet_id, section=section)
        for first, topic, section, payload, packet_id, times in items
        for _ in range(times)
    ]

    together = described(decoded(b"".join(packets)))

    assert together == described([run for one in packets for run in decoded(one)])


@pytest.mark.parametrize(
    "section",
    [properties(2, bytes(4)), properties(35, b"\0\1")],
    ids=["expiry", "alias"],
)
def test_what_belongs_to_one_hop_may_not_go_on_as_it_came(section: bytes) -> None:
    (run,) = decoded(publish("a", b"x", section=section) * 3)

    assert run.data is None


def test_an_alias_may_stand_for_the_topic() -> None:
    (run,) = decoded(publish("", b"x", section=properties(35, b"\0\2")))

    assert (run.topic, run.properties.topic_alias) == (b"", 2)


def test_no_properties_are_the_shared_value() -> None:
    (run,) = decoded(publish("a"))

    assert run.properties is NO_PROPERTIES


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (publish("a", first=0x36), MALFORMED),  # MQTT-3.3.1-4
        (publish("a", first=0x38), MALFORMED),  # MQTT-3.3.1-2
        (publish("a", first=0x32, packet_id=0), PROTOCOL),  # MQTT-2.2.1-3
        (publish(""), PROTOCOL),  # MQTT-4.7.3-1
        (publish("a/+"), ReasonCode.TOPIC_NAME_INVALID),  # MQTT-3.3.2-2
        (publish("#"), ReasonCode.TOPIC_NAME_INVALID),
        (publish("#" * 300), ReasonCode.TOPIC_NAME_INVALID),
        (publish(b"\xff"), MALFORMED),  # MQTT-3.3.2-1
        (publish(b"\xed\xa0\x80"), MALFORMED),  # MQTT-1.5.4-1
        (publish(b"a\0"), MALFORMED),  # MQTT-1.5.4-2
        (publish("a", section=properties(11, 1)), PROTOCOL),  # MQTT-3.3.4-6
        (publish("a", section=properties(35, b"\0\0")), ReasonCode.TOPIC_ALIAS_INVALID),
        (publish("a", section=properties(17, bytes(4))), MALFORMED),
        (publish("a", section=properties(1, 1, 1, 1)), PROTOCOL),
        (publish("a", section=b"\x05"), MALFORMED),
        (publish("a", section=b""), MALFORMED),
        (b"\x30\0", MALFORMED),
        (b"\x30\1\0", MALFORMED),
        (b"\x30\2\0\1", MALFORMED),
        (b"\x32\3\0\1a", MALFORMED),
        (b"\x32\5\0\1a\0\1", MALFORMED),  # no property length
        (b"\x30\xff\xff\xff\xff\1", MALFORMED),  # a length of five bytes
        (b"\x30\x84\0\0\1a\0", MALFORMED),  # MQTT-1.5.5-1
    ],
)
@pytest.mark.parametrize("before", [0, 1, 20])
@pytest.mark.parametrize("after", [b"", b"\0" * 8])
def test_a_fault_leaves_what_came_before(
    data: bytes, code: ReasonCode, before: int, after: bytes
) -> None:
    packets: list[Packet] = []
    good = publish("a", b"xx", first=0x32)

    with refused(code):
        decode_publishes(good * before + data + after, 0, Version.V5, packets)

    assert len(described(packets)) == before


def test_a_packet_identifier_of_0_within_equal_packets_is_found() -> None:
    packets: list[Packet] = []
    data = b"".join(publish("a", b"xx", first=0x32, packet_id=i) for i in (3, 2, 1, 0, 4))

    with refused(PROTOCOL):
        decode_publishes(data, 0, Version.V5, packets)

    assert [one[2] for one in described(packets)] == [3, 2, 1]


@VERSIONS
@pytest.mark.parametrize("data_there", [3, 250])
def test_a_packet_above_the_maximum_is_refused_before_it_is_there(
    version: Version, data_there: int
) -> None:
    small = publish("a", bytes(10), section=section_of(version))
    large = publish("a", bytes(200), section=section_of(version))
    packets: list[Packet] = []

    with refused(ReasonCode.PACKET_TOO_LARGE):
        decode_publishes(
            small * 3 + large[:data_there], 0, version, packets, packet_bytes_max=100
        )

    assert len(described(packets)) == 3


@VERSIONS
def test_a_packet_that_is_not_all_there_waits(version: Version) -> None:
    one = publish("topic", b"payload", section=section_of(version))
    for cut in range(1, len(one)):
        packets: list[Packet] = []

        end = decode_publishes(one * 20 + one[:cut], 0, version, packets)

        assert end == 20 * len(one)
        assert len(described(packets)) == 20


def test_another_packet_ends_what_is_decoded() -> None:
    one = publish("topic", b"payload")

    assert decode_publishes(one + b"\xc0\0", 0, Version.V5, []) == len(one)


def test_a_topic_has_up_to_65535_bytes() -> None:
    topic = "t" * 65_535

    (run,) = decoded(publish(topic, b"x") * 2)

    assert run.topic == topic.encode()
    assert run.payloads == [b"x", b"x"]


@given(st.binary(max_size=60), st.sampled_from([Version.V3_1_1, Version.V5]))
def test_any_bytes_are_packets_or_refused(data: bytes, version: Version) -> None:
    packets: list[Packet] = []
    try:
        end = decode_publishes(b"\x30" + data, 0, version, packets)
    except MqttError:
        return
    assert 0 <= end <= len(data) + 1
