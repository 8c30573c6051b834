"""The order of packets, aliases and windows of one connection, without any I/O."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.mqtt import handlers
from adapters.mqtt.connection.connack import ConnectRate
from adapters.mqtt.errors import MqttError, ReasonCode
from adapters.mqtt.session import (
    ALLOWED_PACKETS,
    InboundAliases,
    InboundWindow,
    State,
    without_alias,
)
from adapters.mqtt.wire import (
    AckRun,
    Auth,
    Connect,
    Disconnect,
    PacketType,
    PublishProperties,
    PublishRun,
    Version,
)


def run(qos: int, *packet_ids: int) -> PublishRun:
    return PublishRun(b"a", [b"x"] * len(packet_ids), qos=qos, packet_ids=packet_ids)


def test_the_first_packet_is_connect_and_no_other() -> None:  # MQTT-3.1.0-1, MQTT-3.1.0-2
    assert ALLOWED_PACKETS[State.AWAIT_CONNECT] == {Connect}
    assert Connect not in ALLOWED_PACKETS[State.CONNECTED]


def test_while_authenticating_only_auth_and_disconnect_come() -> None:  # MQTT-3.1.2-30
    assert ALLOWED_PACKETS[State.AUTHENTICATING] == {Auth, Disconnect}


def test_every_packet_of_a_state_has_its_handler() -> None:
    assert {state: set(table) for state, table in handlers.TABLES.items()} == ALLOWED_PACKETS


@pytest.mark.parametrize("alias", [0, 4])
def test_an_alias_out_of_range_is_refused(alias: int) -> None:  # MQTT-3.3.2-8, MQTT-3.3.2-9
    with pytest.raises(MqttError) as refused:
        InboundAliases(3).resolve(alias, b"a")
    assert refused.value.reason_code is ReasonCode.TOPIC_ALIAS_INVALID


def test_an_alias_is_what_it_was_set_to_last() -> None:
    aliases = InboundAliases(3)
    aliases.resolve(3, b"a")
    aliases.resolve(3, b"b")
    assert aliases.resolve(3, b"") == b"b"


def test_an_alias_that_was_not_set_is_refused() -> None:  # Section 3.3.2.3.4
    with pytest.raises(MqttError) as caught:
        InboundAliases(3).resolve(3, b"")
    assert caught.value.reason_code is ReasonCode.PROTOCOL_ERROR


def test_a_messages_properties_are_without_its_alias() -> None:  # MQTT-3.3.2-11
    properties = PublishProperties(content_type="text/plain", topic_alias=3)
    assert without_alias(properties) == PublishProperties(content_type="text/plain")


def test_a_qos_2_message_that_comes_again_counts_once() -> None:
    window = InboundWindow(Version.V5, 1)
    window.open(run(2, 7))
    window.open(run(2, 7))
    assert window.count == 1


def test_a_3_x_client_is_not_held_to_what_it_was_not_told() -> None:
    window = InboundWindow(Version.V3_1_1, 1)
    window.open(run(1, 1, 2, 3))
    assert window.count == 3


@given(
    st.lists(st.tuples(st.sampled_from([1, 2]), st.integers(1, 20)), max_size=30),
    st.integers(1, 10),
)
def test_the_window_is_exact_on_both_sides_of_its_edge(
    messages: list[tuple[int, int]], count_max: int
) -> None:
    window = InboundWindow(Version.V5, count_max)
    qos_1_count, qos_2_ids = 0, set()
    for qos, packet_id in messages:
        qos_1_count += qos == 1
        qos_2_ids |= {packet_id} if qos == 2 else set()
        if qos_1_count + len(qos_2_ids) > count_max:
            with pytest.raises(MqttError) as refused:
                window.open(run(qos, packet_id))
            assert refused.value.reason_code is ReasonCode.RECEIVE_MAXIMUM_EXCEEDED
            return
        window.open(run(qos, packet_id))
    for packet_id in qos_2_ids:
        window.release(AckRun(PacketType.PUBREL, [packet_id]))
    window.close(run(1, *range(qos_1_count)))
    assert window.count == 0


def test_a_second_brings_its_share_of_newcomers_and_no_more() -> None:
    rate = ConnectRate(2)
    assert [rate.take(0) for _ in range(3)] == [True, True, False]
    assert [rate.take(499), rate.take(500)] == [False, True]
    assert [rate.take(1_000_000) for _ in range(3)] == [True, True, False]
