"""Rare packets and acknowledgements (MQTT 5.0 and 3.1.1 chapter 3): rules of each packet."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.mqtt import codec
from adapters.mqtt.errors import MqttError, ReasonCode
from adapters.mqtt.wire import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    PacketType,
    PublishProperties,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Unsuback,
    Unsubscribe,
    Version,
    Will,
)
from tests.adapters.mqtt.raw_packets import (
    MALFORMED,
    PROTOCOL,
    V3_AND_5,
    connected,
    data,
    described,
    properties,
    refused,
)

V5, V4, V3 = Version.V5, Version.V3_1_1, Version.V3_1
HEADS = {
    V5: data("MQTT", 5),
    V4: data("MQTT", 4),
    V3: data("MQIsdp", 3),
}


def connect(
    flags: int, *payload: bytes | int | str, version: Version = V5, section: bytes = b"\0"
) -> bytes:
    """Return the body of a CONNECT with keep alive 10 and client id ``c``."""
    middle = section if version == V5 else b""
    return data(HEADS[version], flags, b"\0\x0a", middle, "c", *payload)


# CONNECT


@pytest.mark.parametrize("version", V3_AND_5)
def test_connect_without_anything(version: Version) -> None:
    assert codec.decode_connect(connect(0, version=version)) == Connect(
        version=version, client_id="c", clean_start=False, keep_alive=10
    )


@pytest.mark.parametrize("version", V3_AND_5)
def test_connect_with_everything(version: Version) -> None:
    section = b"\0" if version == V5 else b""

    found = codec.decode_connect(
        connect(0xEE, section, "w/t", b"\0\2\0\xff", "user", b"\0\1\xfe", version=version)
    )

    assert found.clean_start
    assert found.will == Will(topic="w/t", payload=b"\0\xff", qos=1, retain=True)
    assert (found.username, found.password) == ("user", b"\xfe")


def test_connect_properties() -> None:
    section = properties(
        *(17, b"\0\0\1\0"),
        *(33, b"\0\x14"),
        *(39, b"\0\0\2\0"),
        *(34, b"\0\3"),
        *(25, 1),
        *(23, 0),
        *(38, "k", "v"),
        *(21, "SCRAM"),
        *(22, b"\0\1\xff"),
    )

    found = codec.decode_connect(connect(2, section=section))

    assert found == Connect(
        version=V5,
        client_id="c",
        clean_start=True,
        keep_alive=10,
        session_expiry_interval=256,
        receive_maximum=20,
        maximum_packet_size=512,
        topic_alias_maximum=3,
        request_response_information=True,
        request_problem_information=False,
        user_properties=(("k", "v"),),
        authentication_method="SCRAM",
        authentication_data=b"\xff",
    )


def test_will_properties() -> None:
    section = properties(24, b"\0\0\0\5", 1, 1, 2, b"\0\0\0\6", 3, "t", 8, "r", 9, "d")

    found = codec.decode_connect(connect(0x04, section, "w", "p"))

    assert found.will == Will(
        topic="w",
        payload=b"p",
        delay_interval=5,
        properties=PublishProperties(1, 6, "t", "r", b"d"),
    )


@pytest.mark.parametrize(
    "head",
    [
        data("MQTT", 3),
        data("MQTT", 6),
        data("MQTT", 0x84),
        data("MQIsdp", 4),
        data("MQIsdp", 5),
        data("mqtt", 4),
        data("", 4),
        data("HTTP", 5),
    ],
)
def test_another_name_or_level_is_not_supported(head: bytes) -> None:
    # MQTT-3.1.2-1, MQTT-3.1.2-2
    with refused(ReasonCode.UNSUPPORTED_PROTOCOL_VERSION):
        codec.decode_connect(head + b"\2\0\0\0\0\1c")


@pytest.mark.parametrize("version", V3_AND_5)
@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (0x01, MALFORMED),  # MQTT-3.1.2-3
        (0x1C, MALFORMED),  # MQTT-3.1.2-12
        (0x08, PROTOCOL),  # MQTT-3.1.2-11
        (0x10, PROTOCOL),
        (0x20, PROTOCOL),  # MQTT-3.1.2-13
    ],
)
def test_flags_that_do_not_go_together(version: Version, flags: int, code: ReasonCode) -> None:
    if version == V3 and not flags & 0x04:  # MQTT 3.1: not used without a will
        decoded = codec.decode_connect(connect(flags, version=version))
        assert decoded == codec.decode_connect(connect(0, version=version))
        return
    with refused(code):
        codec.decode_connect(connect(flags, bytes(9), version=version))


def test_a_password_without_user_name_is_for_5_0_alone() -> None:  # MQTT-3.1.2-22 of 3.1.1
    assert codec.decode_connect(connect(0x40, "pw")).password == b"pw"
    for version in (V3, V4):
        with refused(PROTOCOL):
            codec.decode_connect(connect(0x40, "pw", version=version))


def test_user_name_and_password_may_be_missing_in_3_1() -> None:
    # MQTT 3.1 section 3.1: the Remaining Length takes precedence over the flags.
    assert codec.decode_connect(connect(0xC0, version=V3)).username is None
    assert codec.decode_connect(connect(0xC0, "u", version=V3)).password is None
    for version in (V4, V5):
        with refused(MALFORMED):
            codec.decode_connect(connect(0xC0, "u", version=version))


@pytest.mark.parametrize("version", V3_AND_5)
@pytest.mark.parametrize("topic", ["", "a/+", "#"])
def test_a_will_topic_is_a_topic_name(version: Version, topic: str) -> None:
    section = b"\0" if version == V5 else b""

    with refused(ReasonCode.TOPIC_NAME_INVALID):
        codec.decode_connect(connect(0x04, section, topic, "p", version=version))


def test_authentication_data_needs_a_method() -> None:
    with refused(PROTOCOL):
        codec.decode_connect(connect(2, section=properties(22, "x")))


@pytest.mark.parametrize("version", V3_AND_5)
def test_bytes_after_the_payload_are_malformed(version: Version) -> None:
    with refused(MALFORMED):
        codec.decode_connect(connect(2, 0, version=version))


@pytest.mark.parametrize("version", V3_AND_5)
@pytest.mark.parametrize("text", [b"\0\2\xc3\x28", b"\0\3\xed\xa0\x80", b"\0\1\0"])
def test_client_id_and_user_name_are_utf_8(version: Version, text: bytes) -> None:
    # MQTT-3.1.3-4, MQTT-3.1.3-11 (5.0: 3.1.3-12)
    middle = b"\0" if version == V5 else b""
    with refused(MALFORMED):
        codec.decode_connect(data(HEADS[version], 0, b"\0\0", middle, text))
    with refused(MALFORMED):
        codec.decode_connect(connect(0x80, text, version=version))


@pytest.mark.parametrize("version", V3_AND_5)
def test_a_connect_that_is_cut_is_malformed(version: Version) -> None:
    section = b"\0" if version == V5 else b""
    body = connect(0xC6, section, "w", "p", "user", "pass", version=version)
    fields_end = len(body) - (12 if version == V3 else 0)  # See 3.1's rule above.

    for end in range(fields_end):
        with refused(MALFORMED):
            codec.decode_connect(body[:end])


# SUBSCRIBE and UNSUBSCRIBE


def test_subscription_options() -> None:
    body = data(
        b"\0\x07", properties(11, b"\x80\1", 38, "k", "v"), "a", 0x1E, "$share/g/b", 0x29
    )

    assert codec.decode_subscribe(body, V5) == Subscribe(
        7,
        (
            SubscriptionRequest(
                "a", 2, no_local=True, retain_as_published=True, retain_handling=1
            ),
            SubscriptionRequest("$share/g/b", 1, retain_as_published=True, retain_handling=2),
        ),
        subscription_identifier=128,
        user_properties=(("k", "v"),),
    )


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (data(b"\0\0", 0, "a", 0), PROTOCOL),  # MQTT-2.2.1-3
        (data(b"\0\1", 0), PROTOCOL),  # MQTT-3.8.3-2
        (data(b"\0\1", 0, "a", 3), PROTOCOL),
        (data(b"\0\1", 0, "a", 0x30), PROTOCOL),
        (data(b"\0\1", 0, "a", 0x40), MALFORMED),  # MQTT-3.8.3-5
        (data(b"\0\1", 0, "a", 0x80), MALFORMED),
        (data(b"\0\1", 0, "$share/g/a", 4), PROTOCOL),  # MQTT-3.8.3-4
        (data(b"\0\1", 0, b"\0\1\xff\0"), MALFORMED),  # MQTT-3.8.3-1
        (data(b"\0\1", 0, "a"), MALFORMED),
        (data(b"\0\1", 0, "a", 0, 0), MALFORMED),
        (data(b"\0\1", properties(11, 1, 11, 2), "a", 0), PROTOCOL),
        (data(b"\0\1", properties(11, 0), "a", 0), PROTOCOL),
        (data(b"\0\1", properties(31, "a"), "a", 0), MALFORMED),
        (b"\0", MALFORMED),
        (b"\0\1", MALFORMED),
    ],
)
def test_a_subscribe_that_breaks_a_rule(body: bytes, code: ReasonCode) -> None:
    with refused(code):
        codec.decode_subscribe(body, V5)


@pytest.mark.parametrize("version", [V3, V4])
def test_subscribe_of_3_x(version: Version) -> None:
    body = data(b"\0\1", "a", 0, "b", 2)

    assert codec.decode_subscribe(body, version).requests == (
        SubscriptionRequest("a", 0),
        SubscriptionRequest("b", 2),
    )
    with refused(PROTOCOL):
        codec.decode_subscribe(data(b"\0\1", "a", 3), version)
    for options in (4, 0x10, 0x80):
        body = data(b"\0\1", "a", options)
        if version == V3:  # MQTT 3.1 section 3.8: the upper six bits are not used
            assert codec.decode_subscribe(body, version).requests[0].qos == 0
            continue
        with refused(MALFORMED):  # MQTT-3.8.3-4 of 3.1.1
            codec.decode_subscribe(body, version)
    with refused(PROTOCOL):  # MQTT-3.8.3-3 of 3.1.1
        codec.decode_subscribe(b"\0\1", version)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (data(b"\0\0", 0, "a"), PROTOCOL),
        (data(b"\0\1", 0), PROTOCOL),  # MQTT-3.10.3-2
        (data(b"\0\1", 0, b"\0\1\xff"), MALFORMED),  # MQTT-3.10.3-1
        (data(b"\0\1", 0, b"\0\5a"), MALFORMED),
        (data(b"\0\1", properties(11, 1), "a"), MALFORMED),
        (b"\0\1", MALFORMED),
    ],
)
def test_an_unsubscribe_that_breaks_a_rule(body: bytes, code: ReasonCode) -> None:
    with refused(code):
        codec.decode_unsubscribe(body, V5)


@pytest.mark.parametrize("version", V3_AND_5)
def test_unsubscribe(version: Version) -> None:
    section = b"\0" if version == V5 else b""

    assert codec.decode_unsubscribe(data(b"\1\2", section, "a", "b"), version) == Unsubscribe(
        258, ("a", "b")
    )


# DISCONNECT and AUTH

CLIENT_DISCONNECTS = {0, 4, 0x80, 0x81, 0x82, 0x83, 0x90, *range(0x93, 0x9A)}


@pytest.mark.parametrize("version", V3_AND_5)
def test_a_disconnect_of_no_bytes_is_normal(version: Version) -> None:
    assert codec.decode_disconnect(b"", version) == Disconnect()


def test_disconnect_takes_the_codes_of_a_client() -> None:  # MQTT-3.14.2-1
    for code in range(256):
        if code in CLIENT_DISCONNECTS:
            assert codec.decode_disconnect(bytes((code,)), V5).reason_code == code
        else:
            with refused(PROTOCOL):
                codec.decode_disconnect(bytes((code,)), V5)


def test_disconnect_properties() -> None:
    body = data(4, properties(17, b"\0\0\0\x09", 31, "why", 38, "k", "v"))

    assert codec.decode_disconnect(body, V5) == Disconnect(
        ReasonCode.DISCONNECT_WITH_WILL, 9, "why", (("k", "v"),)
    )


@pytest.mark.parametrize(
    ("body", "version", "code"),
    [
        (data(0), V4, MALFORMED),
        (data(0, 0, 0), V5, MALFORMED),
        (data(0, 5), V5, MALFORMED),
        (data(0, properties(28, "x")), V5, PROTOCOL),
        (data(0, properties(33, b"\0\1")), V5, MALFORMED),
    ],
)
def test_a_disconnect_that_breaks_a_rule(
    body: bytes, version: Version, code: ReasonCode
) -> None:
    with refused(code):
        codec.decode_disconnect(body, version)


def test_auth() -> None:
    body = data(0x19, properties(21, "m", 22, "d", 31, "r", 38, "k", "v"))

    assert codec.decode_auth(body) == Auth(
        ReasonCode.RE_AUTHENTICATE, "m", b"d", "r", (("k", "v"),)
    )


@pytest.mark.parametrize("code", [*range(0x18), 0x1A, 0x80, 0x8C, 0xFF])
def test_auth_takes_the_codes_of_a_client(code: int) -> None:  # MQTT-3.15.2-1
    with refused(PROTOCOL):
        codec.decode_auth(data(code, properties(21, "m")))


@pytest.mark.parametrize(
    ("body", "version", "code"),
    [
        (b"", V5, PROTOCOL),
        (b"\x18", V5, PROTOCOL),  # no method: section 3.15.2.2.2
        (b"\x18\0", V5, PROTOCOL),
        (data(0x18, properties(21, "m"), 0), V5, MALFORMED),
        (data(0x18, properties(21, "m")), V4, MALFORMED),
    ],
)
def test_an_auth_that_breaks_a_rule(body: bytes, version: Version, code: ReasonCode) -> None:
    with refused(code):
        codec.decode_auth(body, version)


# Acknowledgements

PUBLISH_ACKS = {0, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99}
ACKS = [PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP]


@pytest.mark.parametrize("kind", ACKS)
def test_acknowledgements_take_their_codes(kind: PacketType) -> None:
    # MQTT-3.4.2-1, MQTT-3.5.2-1, MQTT-3.6.2-1, MQTT-3.7.2-1
    allowed = PUBLISH_ACKS if kind in {4, 5} else {0, 0x92}
    for code in range(256):
        for tail in (b"", b"\0", properties(31, "r", 38, "k", "v")):
            body = data(b"\1\2", code, tail)
            if code in allowed:
                run = codec.decode_ack(kind, body, V5)
                assert described([run]) == [(kind, 258, code)]
            else:
                with refused(PROTOCOL):
                    codec.decode_ack(kind, body, V5)


@pytest.mark.parametrize("kind", ACKS)
@pytest.mark.parametrize(
    ("body", "version", "code"),
    [
        (b"", V5, MALFORMED),
        (b"\0", V5, MALFORMED),
        (b"\0\0\0", V5, PROTOCOL),  # MQTT-2.2.1-3
        (b"\0\1\0\0\0", V5, MALFORMED),
        (b"\0\1\0\3", V5, MALFORMED),
        (data(b"\0\1\0", properties(33, b"\0\1")), V5, MALFORMED),
        (data(b"\0\1\0", properties(31, "a", 31, "a")), V5, PROTOCOL),
        (b"\0\1\0", V4, MALFORMED),
        (b"\0\1\0", V3, MALFORMED),
    ],
)
def test_an_acknowledgement_that_breaks_a_rule(
    kind: PacketType, body: bytes, version: Version, code: ReasonCode
) -> None:
    with refused(code):
        codec.decode_ack(kind, body, version)


@given(
    st.sampled_from(ACKS),
    st.lists(st.tuples(st.integers(1, 65_535), st.booleans()), max_size=80),
    st.sampled_from(V3_AND_5),
)
def test_acknowledgements_are_decoded_as_they_were(
    kind: PacketType, items: list[tuple[int, bool]], version: Version
) -> None:
    bad = 0x91 if kind in {PacketType.PUBACK, PacketType.PUBREC} else 0x92
    ids = [packet_id for packet_id, _ in items]
    codes = [bad if failed else 0 for _, failed in items]

    data = codec.encode_acks(kind, ids, version, codes)

    reader = connected(version)
    kept = codes if version == V5 else [0] * len(ids)
    expected = [(kind, *pair) for pair in zip(ids, kept, strict=True)]
    assert described(reader.receive(data)) == expected
    assert reader.error is None


# Encoders


@pytest.mark.parametrize(
    ("version", "data_"), [(V5, b"\x20\3\1\0\0"), (V4, b"\x20\2\1\0"), (V3, b"\x20\2\0\0")]
)
def test_connack(version: Version, data_: bytes) -> None:
    assert codec.encode_connack(Connack(session_present=True), version) == data_


def test_session_present_is_0_with_an_error() -> None:  # MQTT-3.2.2-6
    refusal = Connack(ReasonCode.NOT_AUTHORIZED, session_present=True)

    assert codec.encode_connack(refusal, V5) == b"\x20\3\0\x87\0"
    assert codec.encode_connack(refusal, V4) == b"\x20\2\0\5"


def test_connack_of_3_x_is_nothing_where_it_has_no_code() -> None:
    assert codec.encode_connack(Connack(ReasonCode.MALFORMED_PACKET), V4) == b""


def test_suback_and_unsuback() -> None:
    suback = Suback(258, (0, 1, 2, 0x87))

    assert codec.encode_suback(suback, V5) == b"\x90\7\1\2\0\0\1\2\x87"
    assert codec.encode_suback(suback, V4) == b"\x90\6\1\2\0\1\2\x80"  # MQTT-3.9.3-2
    assert codec.encode_unsuback(Unsuback(258, (0, 0x11)), V5) == b"\xb0\5\1\2\0\0\x11"
    assert codec.encode_unsuback(Unsuback(258, (0, 0x11)), V4) == b"\xb0\2\1\2"


def test_disconnect_of_a_server_is_for_5_0_alone() -> None:
    moved = Disconnect(ReasonCode.SERVER_MOVED, server_reference="h:1")

    assert codec.encode_disconnect(moved, V5) == b"\xe0\x08\x9d\x06\x1c\0\3h:1"
    assert codec.encode_disconnect(moved, V4) == b""


NOTES = (("k", "v" * 40),)
ENCODERS: list[Callable[[int], bytes]] = [
    lambda size: codec.encode_connack(
        Connack(reason_string="r" * 20, user_properties=NOTES), V5, size
    ),
    lambda size: codec.encode_suback(Suback(1, (0,), "r" * 20, NOTES), V5, size),
    lambda size: codec.encode_unsuback(Unsuback(1, (0,), "r" * 20, NOTES), V5, size),
    lambda size: codec.encode_disconnect(
        Disconnect(reason_string="r" * 20, user_properties=NOTES), V5, size
    ),
    lambda size: codec.encode_auth(
        Auth(reason_string="r" * 20, user_properties=NOTES), V5, size
    ),
]


@pytest.mark.parametrize("encode", ENCODERS)
def test_notes_are_left_out_where_they_do_not_fit(encode: Callable[[int], bytes]) -> None:
    # MQTT-3.2.2-19, MQTT-3.2.2-20, MQTT-3.9.2-1, MQTT-3.9.2-2, MQTT-3.14.2-3 ...
    whole = encode(1000)

    assert encode(len(whole)) == whole
    shorter = encode(len(whole) - 1)
    assert b"r" * 20 in shorter
    assert b"v" * 40 not in shorter
    assert encode(len(shorter)) == shorter
    assert b"r" * 20 not in encode(len(shorter) - 1)


@given(st.binary(max_size=60), st.sampled_from(V3_AND_5))
def test_any_bytes_are_a_packet_or_refused(body: bytes, version: Version) -> None:
    decoders: list[Callable[[], object]] = [
        lambda: codec.decode_connect(HEADS[version] + body),
        lambda: codec.decode_connect(body),
        lambda: codec.decode_subscribe(body, version),
        lambda: codec.decode_unsubscribe(body, version),
        lambda: codec.decode_disconnect(body, version),
        lambda: codec.decode_auth(body, version),
        lambda: codec.decode_ack(PacketType.PUBACK, body, version),
    ]
    for decode in decoders:
        try:
            decode()
        except MqttError:
            continue
