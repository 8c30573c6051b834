"""Handshake, login, tuning, vhosts, heartbeats, closing."""

import pytest

from adapters.amqp.v091.fields import EMPTY, Field, Table
from adapters.amqp.v091.framing import PROTOCOL_HEADER, encode_method_frame
from adapters.amqp.v091.methods.channel import ChannelOpen, ChannelOpenOk
from adapters.amqp.v091.methods.connection import (
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
)
from tests.adapters.amqp.conformance.conftest import Rig
from tests.support.amqp_raw import Closed
from tests.support.amqp_target import OWN


def test_start_offers_plain_and_names_capabilities(rig: Rig) -> None:
    client = rig.raw()
    client.send_bytes(PROTOCOL_HEADER)
    start = client.read()
    assert isinstance(start, ConnectionStart)
    assert (start.version_major, start.version_minor) == (0, 9)
    assert b"PLAIN" in start.mechanisms.split()
    assert start.locales == b"en_US"
    capabilities = start.server_properties.value("capabilities")
    assert isinstance(capabilities, Table)
    for name in ("publisher_confirms", "basic.nack", "consumer_cancel_notify"):
        assert capabilities.value(name) is True


def test_amqplain_logs_in(rig: Rig) -> None:
    client = rig.raw()
    client.send_bytes(PROTOCOL_HEADER)
    client.read()
    response = b"\x05LOGINS\0\0\0\x05guest\x08PASSWORDS\0\0\0\x05guest"
    client.ask(0, ConnectionStartOk(EMPTY, "AMQPLAIN", response, "en_US"), ConnectionTune)


@OWN
def test_an_unknown_mechanism_is_refused(rig: Rig) -> None:
    client = rig.raw()
    client.send_bytes(PROTOCOL_HEADER)
    client.read()
    capabilities = Table([("authentication_failure_close", Field("t", value=True))])
    properties = Table([("capabilities", Field("F", capabilities))])
    found = client.fault(0, ConnectionStartOk(properties, "FOO", b"", "en_US"))
    assert found.startswith("connection 503 COMMAND_INVALID - ")


@OWN  # RabbitMQ 3.10 says nothing before the connection is open
@pytest.mark.parametrize(
    ("tune", "expected"),
    [
        (
            ConnectionTuneOk(2_047, 0, 0),
            "frame_max = 0 is higher than the maximum allowed value (131072)",
        ),
        (
            ConnectionTuneOk(2_047, 200_000, 0),
            "frame_max = 200000 is higher than the maximum allowed value (131072)",
        ),
        (
            ConnectionTuneOk(2_047, 512, 0),
            "frame_max = 512 is lower than the minimum allowed value (4096)",
        ),
        (
            ConnectionTuneOk(4_000, 131_072, 0),
            "channel_max = 4000 is higher than the maximum allowed value (2047)",
        ),
    ],
)
def test_limits_out_of_bounds_are_refused(
    rig: Rig, tune: ConnectionTuneOk, expected: str
) -> None:
    client = rig.raw()
    client.start()
    assert client.fault(0, tune) == (
        f"connection 530 NOT_ALLOWED - negotiated {expected} (10,31)"
    )


@OWN
def test_frames_of_4096_bytes_are_enough(rig: Rig) -> None:
    client = rig.raw()
    client.start()
    client.send(0, ConnectionTuneOk(10, 4_096, 0), ConnectionOpen("/"))
    client.send(1, ChannelOpen())
    client.read()
    assert client.read() == ChannelOpenOk()
    assert client.fault(11, ChannelOpen()).startswith("connection 530 ")


def test_an_unknown_vhost_is_refused(rig: Rig) -> None:
    client = rig.raw()
    client.start()
    client.send(0, ConnectionTuneOk(2_047, 131_072, 0))
    assert client.fault(0, ConnectionOpen("zz")) == (
        "connection 530 NOT_ALLOWED - vhost zz not found (10,40)"
    )


@OWN
def test_close_is_answered(rig: Rig) -> None:
    client = rig.client()
    client.ask(0, ConnectionClose(200, "bye", 0, 0), ConnectionCloseOk)
    with pytest.raises((Closed, ConnectionResetError)):
        client.read()


def test_a_client_that_closes_at_once_is_answered(rig: Rig) -> None:
    """Methods may be pipelined: what comes before the close is served."""
    client = rig.raw().open()
    client.send_bytes(
        encode_method_frame(1, ChannelOpen())
        + encode_method_frame(0, ConnectionClose(200, "", 0, 0))
    )
    assert client.read() == ChannelOpenOk()
    assert client.read() == ConnectionCloseOk()


@OWN
def test_a_silent_client_is_closed_after_two_heartbeats(rig: Rig) -> None:
    """The server sends heartbeats meanwhile; RabbitMQ takes as long, and resets."""
    client = rig.raw().open(heartbeat_s=1)
    with pytest.raises((Closed, ConnectionResetError)):
        client.read()
