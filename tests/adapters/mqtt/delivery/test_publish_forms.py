"""Runs -> PUBLISH packets: what a receiver of each kind gets."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.mqtt.delivery.publish_forms import FORMS_MAX, form_of
from adapters.mqtt.packets.properties import decode_publish_properties
from adapters.mqtt.packets.publish_codec import decode_publishes
from adapters.mqtt.wire import Packet, PublishProperties, PublishRun, Version
from tests.adapters.mqtt.raw_packets import (
    V3_AND_5,
    described,
    properties,
    publish,
    publish_properties,
    topics,
)

payload_lists = st.lists(st.binary(max_size=5) | st.just(bytes(130)), min_size=1, max_size=8)


def read(data: bytes, version: Version) -> list[Any]:
    packets: list[Packet] = []
    assert decode_publishes(data, 0, version, packets) == len(data)
    return described(packets)


@given(
    topics,
    payload_lists,
    publish_properties,
    st.sampled_from(V3_AND_5),
    st.booleans(),
)
def test_qos_0_is_decoded_as_it_was(
    topic: str,
    payloads: list[bytes],
    values: PublishProperties,
    version: Version,
    retain: bool,  # noqa: FBT001
) -> None:
    run = PublishRun(topic.encode(), payloads, properties=values)

    form = form_of(run, version=version, qos=0, retain=retain)

    kept = values if version == Version.V5 else PublishProperties()
    expected = [(topic.encode(), one, 0, 0, retain, False, kept) for one in payloads]
    assert read(form.data(), version) == expected
    assert form.size_bytes == len(form.data())
    assert form.count == len(payloads)


@given(
    payload_lists,
    st.sampled_from(V3_AND_5),
    st.integers(1, 65_535),
    st.sampled_from([1, 2]),
    st.booleans(),
    st.data(),
)
def test_identifiers_run_on_and_wrap_from_65535_to_1(  # noqa: PLR0917 - hypothesis fills them
    payloads: list[bytes],
    version: Version,
    first_packet_id: int,
    qos: int,
    dup: bool,  # noqa: FBT001
    data: st.DataObject,
) -> None:
    start = data.draw(st.integers(0, len(payloads)))
    stop = data.draw(st.integers(start, len(payloads)))
    form = form_of(PublishRun(b"t", payloads), version=version, qos=qos, retain=False)

    raw = form.with_ids(first_packet_id, start, stop, dup=dup)

    expected = [
        (payload, (first_packet_id - 1 + index) % 65_535 + 1, qos, dup)
        for index, payload in enumerate(payloads[start:stop])
    ]
    found = [(one[1], one[2], one[3], one[5]) for one in read(raw, version)]
    assert found == expected
    assert len(raw) == sum(form.packet_bytes(i) for i in range(start, stop))
    assert form.largest_bytes == max(form.packet_bytes(i) for i in range(form.count))


def test_a_run_that_came_as_it_leaves_is_not_encoded_again() -> None:
    data = publish("a/b", b"12", section=properties(3, "text")) * 3
    packets: list[Packet] = []
    decode_publishes(data, 0, Version.V5, packets)
    (run,) = packets
    assert isinstance(run, PublishRun)

    as_it_came = form_of(run, version=Version.V5, qos=0, retain=False)
    retained = form_of(run, version=Version.V5, qos=0, retain=True)
    older = form_of(run, version=Version.V3_1, qos=0, retain=False)

    assert as_it_came.data() is run.data
    assert (
        retained.data() == publish("a/b", b"12", first=0x31, section=properties(3, "text")) * 3
    )
    assert older.data() == publish("a/b", b"12", section=b"") * 3


def test_3_1_1_bytes_serve_3_1_and_not_5_0() -> None:
    run = PublishRun(b"a", [b"1"], version=Version.V3_1_1, data=b"as it came")

    assert form_of(run, version=Version.V3_1, qos=0, retain=False).data() == b"as it came"
    assert form_of(run, version=Version.V5, qos=0, retain=False).data() == publish("a", b"1")


def test_the_alias_and_dup_of_the_publisher_stay_behind() -> None:  # MQTT-3.3.2-11, 3.3.1-3
    values = PublishProperties(topic_alias=4, content_type="c")
    run = PublishRun(b"a", [b"1"], qos=1, dup=True, packet_ids=[9], properties=values)

    data = form_of(run, version=Version.V5, qos=1, retain=False).with_ids(3, 0, 1)

    assert data == publish("a", b"1", first=0x32, packet_id=3, section=properties(3, "c"))


def test_identifiers_expiry_and_alias_are_the_receivers() -> None:  # MQTT-3.3.4-3, 3.3.2-6
    run = PublishRun(b"a", [b"1"], properties=PublishProperties(message_expiry_interval=60))

    form = form_of(
        run,
        version=Version.V5,
        qos=0,
        retain=False,
        identifiers=(5, 200),
        expiry_s=41,
        alias=2,
        with_topic=False,
    )

    assert form.data().startswith(b"\x30\x11\0\0")
    assert decode_publish_properties(form.data()[4:-1]) == PublishProperties(
        message_expiry_interval=41, topic_alias=2, subscription_identifiers=(5, 200)
    )


def test_an_alias_without_its_topic_is_for_5_0_alone() -> None:
    run = PublishRun(b"a", [b"1"])

    form = form_of(run, version=Version.V3_1_1, qos=0, retain=False, alias=1, with_topic=False)

    assert form.data() == publish("a", b"1", section=b"")


def test_a_form_is_made_once() -> None:
    run = PublishRun(b"a", [b"1", b"22"])

    first = form_of(run, version=Version.V5, qos=1, retain=False)
    again = form_of(run, version=Version.V5, qos=1, retain=False)
    other = form_of(run, version=Version.V5, qos=2, retain=False)

    assert first is again
    assert first is not other


def test_forms_kept_with_a_run_are_bounded() -> None:
    run = PublishRun(b"a", [b"1"])

    for identifier in range(1, FORMS_MAX + 10):
        form_of(run, version=Version.V5, qos=0, retain=False, identifiers=(identifier,))

    assert run.forms is not None
    assert len(run.forms) == FORMS_MAX


@pytest.mark.parametrize("size", [0, 122, 123, 124, 16_377, 16_378, 16_379])
def test_lengths_at_the_edges_of_the_varint(size: int) -> None:
    form = form_of(PublishRun(b"ab", [bytes(size)]), version=Version.V5, qos=0, retain=False)

    assert form.data() == publish("ab", bytes(size))


@pytest.mark.parametrize("payloads", [[b"x"] * 5, [b"x", b"yy", b"x", b"", b"x"]])
def test_after_65535_comes_1(payloads: list[bytes]) -> None:
    form = form_of(PublishRun(b"t", payloads), version=Version.V5, qos=1, retain=False)

    data = form.with_ids(65_534, 0, 5)

    assert [one[2] for one in read(data, Version.V5)] == [65_534, 65_535, 1, 2, 3]
