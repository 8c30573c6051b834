"""Properties (MQTT 5.0 section 2.2.2): rules, round trips, and paho-mqtt as a second opinion."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties

from adapters.mqtt.errors import MqttError, ReasonCode
from adapters.mqtt.packets import properties as p
from adapters.mqtt.packets.properties import (
    CACHED_BYTES_MAX,
    WIDTHS,
    Property,
    decode_properties,
    decode_publish_properties,
    encode_publish_properties,
)
from adapters.mqtt.wire import NO_PROPERTIES, PublishProperties
from tests.adapters.mqtt.raw_packets import (
    MALFORMED,
    PROTOCOL,
    data,
    properties,
    publish_properties,
    refused,
)

PAHO_NAMES = {
    "payload_format_indicator": "PayloadFormatIndicator",
    "message_expiry_interval": "MessageExpiryInterval",
    "content_type": "ContentType",
    "response_topic": "ResponseTopic",
    "correlation_data": "CorrelationData",
    "topic_alias": "TopicAlias",
}
ALL = frozenset(Property)


@given(publish_properties, st.none() | st.integers(1, 65_535))
def test_what_is_encoded_is_decoded(values: PublishProperties, alias: int | None) -> None:
    values = values._replace(topic_alias=alias, subscription_identifiers=(1, 268_435_455))

    assert decode_publish_properties(encode_publish_properties(values)) == values


@given(publish_properties)
def test_paho_reads_what_we_encode(values: PublishProperties) -> None:
    paho = PahoProperties(PacketTypes.PUBLISH)

    paho.unpack(encode_publish_properties(values))

    for ours, theirs in PAHO_NAMES.items():
        assert getattr(paho, theirs, None) == getattr(values, ours)
    assert tuple(getattr(paho, "UserProperty", ())) == values.user_properties


@given(publish_properties)
def test_we_read_what_paho_encodes(values: PublishProperties) -> None:
    paho = PahoProperties(PacketTypes.PUBLISH)
    for ours, theirs in PAHO_NAMES.items():
        if getattr(values, ours) is not None:
            setattr(paho, theirs, getattr(values, ours))
    if values.user_properties:
        paho.UserProperty = list(values.user_properties)

    assert decode_publish_properties(paho.pack()) == values


def test_no_properties_are_one_object() -> None:
    assert decode_publish_properties(b"\0") is NO_PROPERTIES
    assert encode_publish_properties(NO_PROPERTIES) == b"\0"


def test_large_properties_are_not_cached() -> None:
    section = properties(0x03, "x" * CACHED_BYTES_MAX)
    before = p._cached_publish_properties.cache_info().currsize  # type: ignore[attr-defined]

    decode_publish_properties(section)

    after = p._cached_publish_properties.cache_info().currsize  # type: ignore[attr-defined]
    assert before == after


def test_user_properties_keep_their_order_and_repeat() -> None:  # MQTT-3.3.2-18
    section = properties(0x26, "b", "2", 0x26, "a", "1", 0x26, "b", "2")

    assert decode_publish_properties(section).user_properties == (
        ("b", "2"),
        ("a", "1"),
        ("b", "2"),
    )


@pytest.mark.parametrize("identifier", sorted(WIDTHS))
def test_a_number_that_comes_twice_is_a_protocol_error(identifier: int) -> None:
    one = data(identifier, (1).to_bytes(WIDTHS[identifier]))

    with refused(PROTOCOL):
        decode_properties(properties(one, one), 0, ALL)


@pytest.mark.parametrize("identifier", [3, 8, 9, 18, 21, 22, 26, 28, 31])
def test_a_string_that_comes_twice_is_a_protocol_error(identifier: int) -> None:
    with refused(PROTOCOL):
        decode_properties(properties(identifier, "a", identifier, "a"), 0, ALL)


@pytest.mark.parametrize("identifier", sorted(WIDTHS))
def test_a_number_that_is_cut_is_malformed(identifier: int) -> None:
    with refused(MALFORMED):
        decode_properties(properties(identifier, bytes(WIDTHS[identifier] - 1)), 0, ALL)


@pytest.mark.parametrize(
    "allowed",
    [p.CONNECT, p.WILL, p.PUBLISH, p.ACKNOWLEDGEMENT, p.SUBSCRIBE, p.UNSUBSCRIBE, p.AUTH],
)
def test_a_property_of_another_packet_is_malformed(allowed: frozenset[int]) -> None:
    for identifier in [0, 4, 43, 127, *(ALL - allowed)]:
        with refused(MALFORMED):
            decode_properties(properties(identifier, bytes(8)), 0, allowed)


@pytest.mark.parametrize("identifier", [1, 23, 25])
def test_a_flag_is_0_or_1(identifier: int) -> None:
    decode_properties(properties(identifier, 1), 0, ALL)
    with refused(PROTOCOL):
        decode_properties(properties(identifier, 2), 0, ALL)


@pytest.mark.parametrize("section", [(33, b"\0\0"), (39, bytes(4)), (11, 0)])
def test_a_receive_maximum_packet_size_or_identifier_of_0_is_a_protocol_error(
    section: tuple[int | bytes, ...],
) -> None:
    with refused(PROTOCOL):
        decode_properties(properties(*section), 0, ALL)


def test_topic_alias_0_is_invalid() -> None:  # MQTT-3.3.2-8
    with refused(ReasonCode.TOPIC_ALIAS_INVALID):
        decode_publish_properties(properties(35, b"\0\0"))


@pytest.mark.parametrize("topic", ["", "a/+", "#"])
def test_a_response_topic_is_a_topic_name(topic: str) -> None:  # MQTT-3.3.2-14
    with refused(PROTOCOL):
        decode_publish_properties(properties(8, topic))


@pytest.mark.parametrize(
    "text", [b"\xc0\x80", b"\xed\xa0\x80", b"\xff", b"a\0b", b"\xf4\x90\x80\x80"]
)
@pytest.mark.parametrize("lead", [b"\x03", b"\x1f", b"\x26\0\1a", b"\x26"])
def test_text_that_is_not_utf_8_or_has_null_is_malformed(text: bytes, lead: bytes) -> None:
    # MQTT-1.5.4-1, MQTT-1.5.4-2
    section = properties(lead, len(text).to_bytes(2), text, 0, 0)

    with refused(MALFORMED):
        decode_properties(section, 0, ALL)


def test_a_byte_order_mark_is_kept() -> None:  # MQTT-1.5.4-3
    assert decode_publish_properties(properties(3, "\ufeffa")).content_type == "\ufeffa"


@pytest.mark.parametrize("section", [b"", b"\x80", b"\x02\x01", b"\x05\x03\0\2ab\0", b"\x80\0"])
def test_a_length_that_does_not_fit_is_malformed(section: bytes) -> None:
    with refused(MALFORMED):
        decode_publish_properties(section)


@given(st.binary(max_size=40))
def test_any_bytes_are_properties_or_refused(section: bytes) -> None:
    data = properties(section)
    try:
        found = decode_publish_properties(data)
    except MqttError:
        return
    assert decode_publish_properties(encode_publish_properties(found)) == found
