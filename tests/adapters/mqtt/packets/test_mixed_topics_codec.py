"""PUBLISH packets whose topics take turns -> mixed_topics, which say what the packets said."""

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.mqtt.errors import MqttError
from adapters.mqtt.packets.mixed_topics_codec import MIXED_TOPICS_MAX
from adapters.mqtt.packets.publish_codec import decode_publishes
from adapters.mqtt.packets.topic_names import check_topic, good_count
from adapters.mqtt.wire import MixedTopicPublishes, Packet, PublishRun, Version
from tests.adapters.mqtt.raw_packets import described, properties, publish

TOPICS = st.sampled_from(["a", "b", "a/b", "c/d/e", "\u00e9/\u4e2d", "x" * 300, "$SYS/a"])
BAD_TOPICS = st.sampled_from([b"a/+", b"#", b"a\0b", b"\xff/a", b"", b"\xed\xa0\x80"])
SECTIONS = st.sampled_from(
    [b"\0", properties(3, "text"), properties(1, 1), properties(2, 0, 0, 0, 9), b"\x05"]
)
FIRSTS = st.sampled_from([0x32] * 3 + [0x30] * 2 + [0x31, 0x33, 0x3A, 0x34])
BODIES = st.binary(max_size=9) | st.just(bytes(200))
IDS = st.sampled_from([1, 2, 3, 256, 65_535])


def packet_of(topics: st.SearchStrategy[str | bytes], **same: Any) -> st.SearchStrategy[bytes]:
    return st.builds(publish, topics, BODIES, **{"packet_id": IDS, **same})


@st.composite
def reads(draw: st.DrawFn) -> list[bytes]:
    """Packets that have much in common, and one or two that may be odd."""
    same = {"first": st.just(draw(FIRSTS)), "section": st.just(draw(SECTIONS))}
    odd = st.one_of(
        packet_of(BAD_TOPICS, **same),
        packet_of(TOPICS, first=FIRSTS, section=SECTIONS),
        packet_of(TOPICS, **{**same, "packet_id": st.just(0)}),
        packet_of(TOPICS, first=same["first"], section=SECTIONS),
        packet_of(TOPICS, **same).map(
            lambda data: bytes([data[0], data[1] | 0x80, 0]) + data[2:]
        ),
    )
    like = st.lists(packet_of(TOPICS, **same), max_size=5)
    oddities = st.lists(odd, max_size=1)
    return [*draw(like), *draw(oddities), *draw(like), *draw(oddities), *draw(like)]


def in_one_read(data: bytes, version: Version = Version.V5) -> tuple[list[Packet], int | None]:
    """Return what comes of bytes, and the reason code of the error that ended it."""
    packets: list[Packet] = []
    try:
        decode_publishes(data, 0, version, packets, 400)
    except MqttError as error:
        return packets, error.reason_code
    return packets, None


def one_at_a_time(found: list[bytes], version: Version) -> tuple[list[Packet], int | None]:
    packets: list[Packet] = []
    for data in found:
        some, code = in_one_read(data, version)
        packets += some
        if code is not None:
            return packets, code
    return packets, None


def as_they_came(packets: list[Packet]) -> bytes:
    """Return the bytes of all that may leave unchanged."""
    runs = [
        run
        for one in packets
        for run in (one.runs() if isinstance(one, MixedTopicPublishes) else [one])
        if isinstance(run, PublishRun)
    ]
    return b"".join(run.data or b"" for run in runs)


@given(reads(), st.sampled_from([Version.V3_1_1, Version.V5]))
def test_they_say_what_each_packet_says(found: list[bytes], version: Version) -> None:
    wanted, wanted_code = one_at_a_time(found, version)

    packets, code = in_one_read(b"".join(found), version)

    assert (described(packets), code) == (described(wanted), wanted_code)
    assert as_they_came(packets) == as_they_came(wanted)


ODD: Final = {
    "identifier 0": publish("x", first=0x32, packet_id=0),
    "no topic": publish("", first=0x32),
    "too large": publish("x", bytes(400), first=0x32),
    "a wildcard": publish("a/+", first=0x32),
    "U+0000": publish(b"a\0b", first=0x32),
    "not UTF-8": publish(b"\xff", first=0x32),
    "another property": publish("x", first=0x32, section=properties(3, "text")),
    "DUP": publish("x", first=0x3A),
    "retained": publish("x", first=0x33),
    "a topic that is cut": b"\x32\x03\x00\x09x",
    "no room for an identifier": b"\x32\x04\x00\x01xy",
    "nothing": b"\x32\x00",
    "a length that is not minimal": b"\x32\x81\x00" + bytes(9),
    "a length of five bytes": b"\x32\xff\xff\xff\xff\x01" + bytes(9),
}


@pytest.mark.parametrize("name", ODD)
def test_what_is_odd_ends_a_mixed_topics(name: str) -> None:
    like = [publish(f"t/{number}", b".", first=0x32) for number in range(6)]
    found = [*like, ODD[name], *like]
    wanted, wanted_code = one_at_a_time(found, Version.V5)

    packets, code = in_one_read(b"".join(found))

    assert (described(packets), code) == (described(wanted), wanted_code)
    assert isinstance(packets[0], MixedTopicPublishes)
    assert len(packets[0].topics) == 6


@pytest.mark.parametrize("first", [0x30, 0x31, 0x32, 0x33])
@pytest.mark.parametrize("section", [b"\0", properties(3, "text")])
def test_topics_that_take_turns_are_one_mixed_topics(first: int, section: bytes) -> None:
    data = b"".join(
        publish(f"t/{n % 7}", b"%d" % n, first=first, packet_id=n + 1, section=section)
        for n in range(50)
    )

    (mixed,), code = in_one_read(data)

    assert code is None
    assert isinstance(mixed, MixedTopicPublishes)
    assert mixed.topics == [b"t/%d" % (n % 7) for n in range(50)]
    assert mixed.payloads == [b"%d" % n for n in range(50)]
    assert mixed.packet_ids == (list(range(1, 51)) if first & 2 else [])
    assert (mixed.qos, mixed.like.retain) == (first >> 1 & 1, first & 1 == 1)
    assert b"".join(mixed.data) == (data if first == 0x30 else b"")


def test_a_mixed_topics_is_as_large_as_a_batch_and_ends_where_a_run_begins() -> None:
    turns = [publish(f"t/{n}", first=0x32) for n in range(MIXED_TOPICS_MAX + 10)]
    same = [publish("same", first=0x32)] * 5

    packets, _ = in_one_read(b"".join([*turns, *same, *turns[:3]]))

    counts = [
        len(one.payloads)
        for one in packets
        if isinstance(one, MixedTopicPublishes | PublishRun)
    ]
    assert counts == [MIXED_TOPICS_MAX, 10, 5, 1, 1, 1]
    assert [type(one) for one in packets] == [
        MixedTopicPublishes,
        MixedTopicPublishes,
        *[PublishRun] * 4,
    ]


@pytest.mark.parametrize(
    ("first", "section"),
    [
        (0x34, b"\0"),
        (0x3A, b"\0"),
        (0x32, properties(2, 0, 0, 0, 9)),
        (0x32, properties(35, 0, 1)),
    ],
    ids=["QoS 2", "DUP", "expiry", "alias"],
)
def test_what_is_no_mixed_topics(first: int, section: bytes) -> None:
    data = b"".join(publish(f"t/{n}", first=first, section=section) for n in range(5))

    packets, code = in_one_read(data)

    assert code is None
    assert [type(one) for one in packets] == [PublishRun] * 5


def test_what_is_not_there_in_whole_waits() -> None:
    whole = publish("a", b"1", first=0x32) + publish("b", b"22", first=0x32)
    packet = publish("c", b"333", first=0x32)
    for cut in range(len(packet)):
        packets: list[Packet] = []
        assert decode_publishes(whole + packet[:cut], 0, Version.V5, packets) == len(whole)
        assert len(described(packets)) == 2


@given(st.lists(TOPICS.map(str.encode) | BAD_TOPICS.filter(bool), max_size=8))
def test_topics_are_good_up_to_the_first_that_is_not(topics: list[bytes]) -> None:
    count = good_count(topics)

    for topic in topics[:count]:
        check_topic(topic)
    if count < len(topics):
        with pytest.raises(MqttError):
            check_topic(topics[count])
