"""Bytes from the specifications, and ohmqtt's codec (5.0) as a second opinion both ways."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ohmqtt import packet as theirs
from ohmqtt.error import MQTTError
from ohmqtt.mqtt_spec import MQTTQoS, MQTTReasonCode
from ohmqtt.property import (
    MQTTAuthProps,
    MQTTConnectProps,
    MQTTDisconnectProps,
    MQTTPublishProps,
    MQTTSubscribeProps,
    MQTTWillProps,
)

from adapters.mqtt import codec
from adapters.mqtt.delivery.publish_forms import form_of
from adapters.mqtt.errors import ReasonCode
from adapters.mqtt.packets.primitives import decode_text, decode_varint, encode_varint
from adapters.mqtt.wire import (
    AckRun,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    PublishProperties,
    PublishRun,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Unsuback,
    Unsubscribe,
    Version,
    Will,
)
from tests.adapters.mqtt.raw_packets import (
    connected,
    described,
    packet,
    packet_ids,
    publish_properties,
    texts,
    topics,
    uint32,
    user_properties,
)


def one_of(data: bytes, version: Version | None = Version.V5) -> Packet:
    reader = connected()
    reader.version = version
    (found,) = reader.receive(data)
    assert reader.error is None
    return found


# The specifications' own bytes


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("00", 0),
        ("7f", 127),
        ("80 01", 128),
        ("ff 7f", 16_383),
        ("80 80 01", 16_384),
        ("ff ff 7f", 2_097_151),
        ("80 80 80 01", 2_097_152),
        ("ff ff ff 7f", 268_435_455),
    ],
)
def test_section_1_5_5_sizes_of_variable_byte_integers(raw: str, value: int) -> None:
    data = bytes.fromhex(raw)

    assert encode_varint(value) == data
    assert decode_varint(data, 0) == (value, len(data))
    for cut in range(len(data)):
        assert decode_varint(data[:cut], 0) is None


def test_section_1_5_4_string_example() -> None:  # Figure 1.2
    assert decode_text(bytes.fromhex("00 05 41 f0 aa 9b 94"), 0) == ("A\U0002a6d4", 7)


def test_section_3_1_2_variable_header_example() -> None:  # 5.0 figure 3-6
    header = bytes.fromhex("00 04 4d 51 54 54 05 ce 00 0a 05 11 00 00 00 0a")
    payload = bytes.fromhex("00 01 63 00 00 01 77 00 01 6d 00 01 75 00 01 70")

    assert codec.decode_connect(header + payload) == Connect(
        version=Version.V5,
        client_id="c",
        clean_start=True,
        keep_alive=10,
        username="u",
        password=b"p",
        will=Will("w", b"m", qos=1),
        session_expiry_interval=10,
    )


def test_3_1_1_section_3_1_2_variable_header_example() -> None:  # 3.1.1 figure 3.6
    header = bytes.fromhex("00 04 4d 51 54 54 04 ce 00 0a")
    payload = bytes.fromhex("00 01 63 00 01 77 00 01 6d 00 01 75 00 01 70")

    connect = codec.decode_connect(header + payload)

    assert (connect.version, connect.will) == (4, Will("w", b"m", qos=1))


def test_3_1_section_3_1_variable_header_example() -> None:
    header = bytes.fromhex("00 06 4d 51 49 73 64 70 03 ce 00 0a")
    payload = bytes.fromhex("00 01 63 00 01 77 00 01 6d 00 01 75 00 01 70")

    connect = codec.decode_connect(header + payload)

    assert (connect.version, connect.username) == (3, "u")


@pytest.mark.parametrize("section", ["", "00"])
def test_section_3_3_2_publish_variable_header_example(section: str) -> None:  # Figure 3-9
    header = bytes.fromhex(f"00 03 61 2f 62 00 0a {section}")
    version = Version.V5 if section else Version.V3_1_1

    run = one_of(packet(0x32, header), version)

    assert isinstance(run, PublishRun)
    assert (run.topic, list(run.packet_ids), run.payloads) == (b"a/b", [10], [b""])


def test_section_3_8_3_subscribe_payload_example() -> None:  # Figure 3-21
    payload = bytes.fromhex("00 03 61 2f 62 01 00 03 63 2f 64 02")

    assert codec.decode_subscribe(b"\0\x0a\0" + payload, Version.V5) == Subscribe(
        10, (SubscriptionRequest("a/b", 1), SubscriptionRequest("c/d", 2))
    )
    assert codec.decode_subscribe(b"\0\x0a" + payload, Version.V3_1_1).packet_id == 10


def test_section_3_10_3_unsubscribe_payload_example() -> None:  # Figure 3-30
    payload = bytes.fromhex("00 03 61 2f 62 00 03 63 2f 64")

    assert codec.decode_unsubscribe(b"\0\x0a\0" + payload, Version.V5) == Unsubscribe(
        10, ("a/b", "c/d")
    )


def test_section_3_12_pingreq_and_3_13_pingresp() -> None:
    assert len(connected().receive(bytes.fromhex("c0 00"))) == 1
    assert bytes.fromhex("d0 00") == codec.PINGRESP


# ohmqtt: what it writes, we read


def given_only(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value not in (None, [], set())}


def ohmqtt_message(values: PublishProperties) -> dict[str, Any]:
    return given_only(
        PayloadFormatIndicator=values.payload_format_indicator,
        MessageExpiryInterval=values.message_expiry_interval,
        ContentType=values.content_type,
        ResponseTopic=values.response_topic,
        CorrelationData=values.correlation_data,
        UserProperty=list(values.user_properties),
    )


@given(
    st.builds(
        Connect,
        version=st.just(Version.V5),
        client_id=texts,
        clean_start=st.booleans(),
        keep_alive=st.integers(0, 65_535),
        username=st.none() | texts.filter(bool),
        password=st.none() | st.binary(min_size=1, max_size=9),
        will=st.none()
        | st.builds(
            Will,
            topic=topics,
            payload=st.binary(min_size=1, max_size=9),
            qos=st.integers(0, 2),
            retain=st.booleans(),
            properties=publish_properties,
            delay_interval=uint32,
        ),
        session_expiry_interval=uint32,
        receive_maximum=packet_ids,
        maximum_packet_size=st.integers(1, 0xFFFFFFFF),
        topic_alias_maximum=st.integers(0, 65_535),
        request_response_information=st.booleans(),
        request_problem_information=st.booleans(),
        user_properties=user_properties,
        authentication_method=texts,
        authentication_data=st.none() | st.binary(max_size=9),
    )
)
def test_connect_as_ohmqtt_writes_it(connect: Connect) -> None:
    will = connect.will or Will("", b"")
    sent = theirs.MQTTConnectPacket(
        client_id=connect.client_id,
        keep_alive=connect.keep_alive,
        clean_start=connect.clean_start,
        will_topic=will.topic,
        will_payload=will.payload,
        will_qos=will.qos,
        will_retain=will.retain,
        will_props=MQTTWillProps(
            **ohmqtt_message(will.properties), WillDelayInterval=will.delay_interval
        ),
        username=connect.username,
        password=connect.password,
        properties=MQTTConnectProps(
            **given_only(
                SessionExpiryInterval=connect.session_expiry_interval,
                ReceiveMaximum=connect.receive_maximum,
                MaximumPacketSize=connect.maximum_packet_size,
                TopicAliasMaximum=connect.topic_alias_maximum,
                RequestResponseInformation=connect.request_response_information,
                RequestProblemInformation=connect.request_problem_information,
                AuthenticationMethod=connect.authentication_method,
                AuthenticationData=connect.authentication_data,
                UserProperty=list(connect.user_properties),
            )
        ),
    )

    assert one_of(sent.encode(), None) == connect


@given(
    topics,
    st.binary(max_size=200),
    st.integers(0, 2),
    st.booleans(),
    packet_ids,
    publish_properties,
    st.integers(1, 65_535),
)
def test_publish_as_ohmqtt_writes_it(  # noqa: PLR0917 - hypothesis fills them
    topic: str,
    payload: bytes,
    qos: int,
    flag: bool,  # noqa: FBT001
    packet_id: int,
    values: PublishProperties,
    alias: int,
) -> None:
    sent = theirs.MQTTPublishPacket(
        topic=topic,
        payload=payload,
        qos=MQTTQoS(qos),
        retain=flag,
        dup=flag and qos > 0,
        packet_id=packet_id,
        properties=MQTTPublishProps(**ohmqtt_message(values), TopicAlias=alias),
    )

    found = described([one_of(sent.encode())])

    values = values._replace(topic_alias=alias)
    wanted_id = packet_id if qos else 0
    assert found == [(topic.encode(), payload, wanted_id, qos, flag, flag and qos > 0, values)]


@given(
    packet_ids,
    st.lists(st.tuples(texts, st.integers(0, 2)), min_size=1, max_size=4),
    st.integers(1, 268_435_455),
    user_properties,
)
def test_subscribe_as_ohmqtt_writes_it(
    packet_id: int,
    filters: list[tuple[str, int]],
    identifier: int,
    users: tuple[tuple[str, str], ...],
) -> None:
    sent = theirs.MQTTSubscribePacket(
        topics=filters,
        packet_id=packet_id,
        properties=MQTTSubscribeProps(
            SubscriptionIdentifier={identifier}, **given_only(UserProperty=list(users))
        ),
    )

    requests = tuple(SubscriptionRequest(text, qos) for text, qos in filters)
    assert one_of(sent.encode()) == Subscribe(packet_id, requests, identifier, users)


@given(packet_ids, st.lists(texts, min_size=1, max_size=4))
def test_unsubscribe_as_ohmqtt_writes_it(packet_id: int, filters: list[str]) -> None:
    sent = theirs.MQTTUnsubscribePacket(topics=filters, packet_id=packet_id)

    assert one_of(sent.encode()) == Unsubscribe(packet_id, tuple(filters))


@given(uint32, texts, user_properties)
def test_disconnect_and_auth_as_ohmqtt_writes_them(
    expiry_s: int, text: str, users: tuple[tuple[str, str], ...]
) -> None:
    disconnect = theirs.MQTTDisconnectPacket(
        reason_code=MQTTReasonCode(4),
        properties=MQTTDisconnectProps(
            SessionExpiryInterval=expiry_s,
            ReasonString=text,
            **given_only(UserProperty=list(users)),
        ),
    )
    auth = theirs.MQTTAuthPacket(
        reason_code=MQTTReasonCode(0x18),
        properties=MQTTAuthProps(AuthenticationMethod=text, AuthenticationData=b"\xff"),
    )

    found = one_of(disconnect.encode())
    assert found == Disconnect(ReasonCode(4), expiry_s, text, users)
    assert one_of(auth.encode()) == Auth(ReasonCode(0x18), text, b"\xff")


ACKS = {
    PacketType.PUBACK: theirs.MQTTPubAckPacket,
    PacketType.PUBREC: theirs.MQTTPubRecPacket,
    PacketType.PUBREL: theirs.MQTTPubRelPacket,
    PacketType.PUBCOMP: theirs.MQTTPubCompPacket,
}


@given(st.sampled_from(sorted(ACKS)), packet_ids, st.booleans())
def test_acknowledgements_both_ways(
    kind: PacketType,
    packet_id: int,
    failed: bool,  # noqa: FBT001
) -> None:
    code = (0x91 if kind in {4, 5} else 0x92) if failed else 0
    sent = ACKS[kind](packet_id, MQTTReasonCode(code))

    found = one_of(sent.encode())

    assert isinstance(found, AckRun)
    assert described([found]) == [(kind, packet_id, code)]
    assert (
        theirs.decode_packet(codec.encode_acks(kind, [packet_id], Version.V5, [code])) == sent
    )


# ohmqtt: what we write, it reads


@given(
    topics,
    st.lists(st.binary(max_size=200), min_size=1, max_size=4),
    st.integers(0, 2),
    st.booleans(),
    publish_properties,
    st.lists(st.integers(1, 268_435_455), max_size=3, unique=True),
)
def test_ohmqtt_reads_our_publish(  # noqa: PLR0917 - hypothesis fills them
    topic: str,
    payloads: list[bytes],
    qos: int,
    retain: bool,  # noqa: FBT001
    values: PublishProperties,
    identifiers: list[int],
) -> None:
    run = PublishRun(topic.encode(), payloads, properties=values)
    form = form_of(
        run, version=Version.V5, qos=qos, retain=retain, identifiers=tuple(identifiers)
    )

    data = form.with_ids(5, 0, form.count) if qos else form.data()

    at = 0
    for index, payload in enumerate(payloads):
        end = at + form.packet_bytes(index)
        found = theirs.decode_packet(data[at:end])
        at = end
        assert isinstance(found, theirs.MQTTPublishPacket)
        assert (found.topic, found.payload) == (topic, payload)
        assert (found.qos, found.retain, found.dup) == (qos, retain, False)
        assert found.packet_id == (5 + index if qos else 0)
        assert found.properties == MQTTPublishProps(
            **ohmqtt_message(values),
            **given_only(SubscriptionIdentifier=set(identifiers)),
        )
    assert at == len(data)


def test_ohmqtt_reads_our_connack() -> None:
    connack = Connack(
        session_present=True,
        session_expiry_interval=1,
        receive_maximum=2,
        maximum_qos=1,
        retain_available=True,
        maximum_packet_size=3,
        assigned_client_identifier="id",
        topic_alias_maximum=4,
        reason_string="reason",
        user_properties=(("k", "v"), ("k", "w")),
        wildcard_subscription_available=True,
        subscription_identifiers_available=False,
        shared_subscription_available=True,
        server_keep_alive=5,
        response_information="response",
        server_reference="host:1883",
        authentication_method="method",
        authentication_data=b"\xff",
    )

    found = theirs.decode_packet(codec.encode_connack(connack, Version.V5))

    assert isinstance(found, theirs.MQTTConnAckPacket)
    assert found.session_present
    assert vars(found.properties) == {
        "SessionExpiryInterval": 1,
        "ReceiveMaximum": 2,
        "MaximumQoS": 1,
        "RetainAvailable": True,
        "MaximumPacketSize": 3,
        "AssignedClientIdentifier": "id",
        "TopicAliasMaximum": 4,
        "ReasonString": "reason",
        "UserProperty": [("k", "v"), ("k", "w")],
        "WildcardSubscriptionAvailable": True,
        "SubscriptionIdentifierAvailable": False,
        "SharedSubscriptionAvailable": True,
        "ServerKeepAlive": 5,
        "ResponseInformation": "response",
        "ServerReference": "host:1883",
        "AuthenticationMethod": "method",
        "AuthenticationData": b"\xff",
    }


def test_ohmqtt_reads_our_suback_unsuback_disconnect_and_auth() -> None:
    said = {"ReasonString": "r", "UserProperty": [("k", "v")]}
    written = [
        codec.encode_suback(Suback(7, (0, 2, 0x87), "r", (("k", "v"),)), Version.V5),
        codec.encode_unsuback(Unsuback(8, (0, 0x11), "r", (("k", "v"),)), Version.V5),
        codec.encode_disconnect(
            Disconnect(ReasonCode(0x9D), None, "r", (("k", "v"),), "host"), Version.V5
        ),
        codec.encode_auth(Auth(ReasonCode(0x18), "m", b"d", "r", (("k", "v"),))),
    ]

    suback, unsuback, disconnect, auth = (theirs.decode_packet(one) for one in written)

    assert isinstance(suback, theirs.MQTTSubAckPacket)
    assert (suback.packet_id, list(suback.reason_codes)) == (7, [0, 2, 0x87])
    assert isinstance(unsuback, theirs.MQTTUnsubAckPacket)
    assert (unsuback.packet_id, list(unsuback.reason_codes)) == (8, [0, 0x11])
    assert isinstance(disconnect, theirs.MQTTDisconnectPacket)
    assert disconnect.reason_code == 0x9D
    assert isinstance(auth, theirs.MQTTAuthPacket)
    assert vars(suback.properties) == vars(unsuback.properties) == said
    assert vars(disconnect.properties) == {**said, "ServerReference": "host"}
    assert vars(auth.properties) == {
        **said,
        "AuthenticationMethod": "m",
        "AuthenticationData": b"d",
    }


# What ohmqtt 1.2 takes and the specification does not: of a server an identifier may come, of a
# client not (MQTT-3.3.4-6); U+0000 (MQTT-1.5.4-2); an empty topic without an alias
# (MQTT-4.7.3-1); alias 0 (MQTT-3.3.2-8); a response topic with wildcards (MQTT-3.3.2-14).
OURS_ALONE = {
    "a client sent a subscription identifier with a PUBLISH",
    "a string has the character U+0000",
    "a topic is empty and there is no alias",
    "a topic alias is 0",
    "the response topic is empty or has a wildcard",
}
PUBLISHES = [
    form_of(
        PublishRun(
            b"ab",
            [b"xyz"],
            properties=PublishProperties(1, 2, "c", "r", b"d", (("k", "v"),)),
        ),
        version=Version.V5,
        qos=qos,
        retain=False,
        alias=1,
    )
    for qos in range(3)
]


@given(
    st.integers(0, 2), st.lists(st.tuples(st.integers(2, 44), st.integers(0, 255)), max_size=2)
)
def test_ohmqtt_and_we_take_and_refuse_the_same_publishes(
    qos: int, changes: list[tuple[int, int]]
) -> None:
    form = PUBLISHES[qos]
    data = bytearray(form.with_ids(7, 0, 1) if qos else form.data())
    for at, byte in changes:
        data[at % len(data)] = byte
    data[0] = 0x30 | qos << 1
    data[1] = len(data) - 2

    reader = connected()
    ours = described(reader.receive(bytes(data)))
    try:
        read = theirs.decode_packet(bytes(data))
    except (MQTTError, IndexError, ValueError):
        assert reader.error is not None
        return
    assert isinstance(read, theirs.MQTTPublishPacket)
    if reader.error is None:
        assert ours[0][:3] == (read.topic.encode(), read.payload, read.packet_id)
    else:
        assert str(reader.error) in OURS_ALONE
