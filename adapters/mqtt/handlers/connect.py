"""CONNECT (section 3.1): who it is, what it may do, which session it gets.

The order of refusals: the node drains, too many come at once, the client identifier, the
authentication, the will; then the session is opened, and CONNACK goes when it is kept.
"""

import secrets
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from adapters.mqtt.access.authentication import (
    ScramExchange,
    authenticate_password,
    check_anonymous,
)
from adapters.mqtt.access.client_access import principal_of
from adapters.mqtt.codec import encode_connack
from adapters.mqtt.connection.connack import Agreed, connack
from adapters.mqtt.connection.keep_alive import agree
from adapters.mqtt.errors import MqttError, ReasonCode, reason_code
from adapters.mqtt.handlers import auth
from adapters.mqtt.session import State
from adapters.mqtt.wire import PACKET_ID_MAX, Connect, Version, Will
from gateway.auth.certificates import certificate_user
from gateway.auth.login_throttle import Peer
from gateway.errors import GatewayError, as_value

if TYPE_CHECKING:  # connections know handlers
    from adapters.mqtt.connection.connection import MqttConnection
    from adapters.mqtt.sessions.client_session import ClientSession

ASSIGNED_ID_BYTES: Final = 12  # of randomness in a client identifier that we make


def handle(connection: "MqttConnection", connect: Connect) -> None:
    """Take the first packet; whatever comes behind it waits for CONNACK."""
    connection.begin(connect)
    if connection.adapter.is_draining:
        connection.hurry()
        return
    if not connection.adapter.connect_rate.take(connection.node.clock.monotonic_ms()):
        msg = "connects_per_s_max is reached"
        raise MqttError(ReasonCode.CONNECTION_RATE_EXCEEDED, msg)
    if not connect.client_id and not connect.clean_start and connect.version < Version.V5:
        msg = "an empty client identifier needs a clean session"  # MQTT-3.1.3-8 of 3.1.1
        raise MqttError(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, msg)
    if not connect.client_id and connect.version is Version.V3_1:
        msg = "MQTT 3.1 wants a client identifier of one character or more"
        raise MqttError(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, msg)
    _authenticate(connection, connect)


def _authenticate(connection: "MqttConnection", connect: Connect) -> None:
    authenticator, logins = connection.node.authenticator, connection.node.logins
    peer = Peer("mqtt", connection.peer_host)
    if connect.authentication_method is not None:
        connection.exchange = ScramExchange(
            connect.authentication_method, authenticator, logins, peer
        )
        if connect.authentication_data is not None:
            auth.receive(connection, connect.authentication_data)
        else:  # a client-first message may come with AUTH instead
            auth.ask(connection, b"")
        return
    if connect.username is not None and (
        authenticator.required or authenticator.is_known(connect.username)
    ):
        connection.wait()
        connection.start(
            authenticate_password(connect, authenticator, logins, peer),
            partial(_on_password, connection),
        )
        return
    username = certificate_user(connection.transport, connection.listener.config)
    if username is None:
        try:
            check_anonymous(authenticator)
        except GatewayError as error:
            logins.refuse(peer, connect.username or "", error)
            connection.fail(as_value(error))
            return
    admit(connection, username)


def _on_password(
    connection: "MqttConnection", username: str | None, error: GatewayError | None
) -> None:
    if error is not None:
        connection.fail(error)
    else:
        admit(connection, username)


def admit(
    connection: "MqttConnection", username: str | None, authentication_data: bytes | None = None
) -> None:
    """Open the session of a client whose name is known (None: nobody was asked)."""
    asked = connection.connect
    assert asked is not None
    node, config = connection.node, connection.config
    client_id = asked.client_id or f"auto-{secrets.token_hex(ASSIGNED_ID_BYTES)}"
    principal = principal_of(username, connection.peer_host)
    connection.client_id, connection.principal = client_id, principal
    connection.access = node.access.of_client(client_id, username, principal)
    _check_owner(connection, username)
    if asked.will is not None:
        _check_will(connection, asked.will)
    agreed = Agreed(
        client_id=client_id,
        session_expiry_interval=_expiry_s(asked, config.session.expiry_s_max),
        keep_alive=agree(
            asked.version,
            asked.keep_alive,
            s_max=config.keep_alive_s_max,
            unlimited_s=PACKET_ID_MAX,
        ),
        authentication_data=authentication_data,
    )
    connect = replace(
        asked,
        client_id=client_id,
        username=username,
        password=None,
        session_expiry_interval=agreed.session_expiry_interval,
    )
    on_opened = partial(_on_opened, connection, agreed)
    connection.wait()
    node.sessions.open(connect, connection, on_opened)


def _on_opened(
    connection: "MqttConnection",
    agreed: Agreed,
    session: "ClientSession | None",
    is_present: bool,  # noqa: FBT001 - the core's callback
    error: GatewayError | None,
) -> None:
    connection.guard(_welcome, connection, agreed, session, is_present, error)


def _welcome(
    connection: "MqttConnection",
    agreed: Agreed,
    session: "ClientSession | None",
    is_present: bool,  # noqa: FBT001 - see above
    error: GatewayError | None,
) -> None:
    node, asked = connection.node, connection.connect
    assert asked is not None
    if session is None:
        assert error is not None
        connection.fail(error)
        return
    if connection.is_closing:  # it went while its session was being opened
        node.sessions.closed(session, connection, with_will=False, session_expiry_interval=None)
        return
    connection.session = session
    packet = connack(asked, agreed, connection.config, is_present=is_present)
    connection.send_packet(encode_connack(packet, asked.version, connection.packet_bytes_max))
    connection.enter(State.CONNECTED)
    connection.has_greeted = True
    connection.with_will = True
    connection.keep_silent_for(agreed.keep_alive)
    node.counters.connects += 1
    session.attach(connection)
    connection.go_on()


def _check_owner(connection: "MqttConnection", username: str | None) -> None:
    """Let nobody have another user's session: it holds messages meant for him."""
    present = connection.node.sessions.find(connection.client_id)
    if present is not None and present.username not in {None, username}:
        msg = "the client identifier is another user's"
        raise MqttError(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, msg)


def _check_will(connection: "MqttConnection", will: Will) -> None:
    """Refuse a will that could not be published, while there is somebody to be told."""
    assert connection.access is not None
    refusal: GatewayError | None
    refusal = connection.access.publish_refusal(will.topic.encode(), will.qos)
    if refusal is None:
        refusal = connection.node.publishing.will_refusal(connection.client_id, will)
    if refusal is None:
        return
    if connection.version is not Version.V5:  # 3.x has one code for it
        raise MqttError(ReasonCode.NOT_AUTHORIZED, f"the will: {refusal}")
    raise MqttError(reason_code(refusal), f"the will: {refusal}")


def _expiry_s(connect: Connect, s_max: int) -> int:
    """Return how long the session outlives its connection; 3.x knows always and never."""
    if connect.version is not Version.V5:
        return 0 if connect.clean_start else s_max
    return min(connect.session_expiry_interval, s_max)
