"""Admission of a client whose name is known: open its session, send CONNACK when it is durable."""

import secrets
from dataclasses import replace
from functools import partial
from typing import Final

from adapters.mqtt.access.client_access import principal_of
from adapters.mqtt.codec import encode_connack
from adapters.mqtt.connection.connack import Agreed, connack
from adapters.mqtt.connection.connection import MqttConnection
from adapters.mqtt.connection.keep_alive import agree
from adapters.mqtt.connection.ownership import is_served, refer_to_owner
from adapters.mqtt.errors import MqttError, ReasonCode, reason_code
from adapters.mqtt.node import Node
from adapters.mqtt.session import State
from adapters.mqtt.sessions.client_session import ClientSession
from adapters.mqtt.wire import PACKET_ID_MAX, Connect, Version, Will
from gateway.errors import GatewayError

ASSIGNED_ID_BYTES: Final = 12  # of randomness in a client identifier that we make
ASSIGNED_ID_TRIES_MAX: Final = 1_000


def admit(
    connection: MqttConnection, username: str | None, authentication_data: bytes | None = None
) -> None:
    """Open the session of an authenticated client (None: no user name was asked for)."""
    asked = connection.connect
    assert asked is not None
    node, config = connection.node, connection.config
    client_id = asked.client_id or _assigned_id(node)
    principal = principal_of(username, connection.peer_host)
    connection.client_id, connection.principal = client_id, principal
    connection.access = node.access.of_client(client_id, username, principal)
    if not is_served(node, client_id):
        refer_to_owner(connection, client_id)
        return
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


def _assigned_id(node: Node) -> str:
    """Return a new client identifier whose session this node serves, if that is found soon."""
    for _ in range(ASSIGNED_ID_TRIES_MAX):
        client_id = f"auto-{secrets.token_hex(ASSIGNED_ID_BYTES)}"
        if is_served(node, client_id):
            break
    return client_id


def _on_opened(
    connection: MqttConnection,
    agreed: Agreed,
    session: ClientSession | None,
    is_present: bool,  # noqa: FBT001 - the core's callback
    error: GatewayError | None,
) -> None:
    arguments = (_send_connack, connection, agreed, session, is_present, error)
    if session is None:
        connection.guard(*arguments)
        return
    connection.node.context.returning.prepare(
        session, connection, partial(connection.guard, *arguments)
    )


def _send_connack(
    connection: MqttConnection,
    agreed: Agreed,
    session: ClientSession | None,
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
    if session.connection is not connection:
        return  # it moves to another node, which its client will be told
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


def _check_owner(connection: MqttConnection, username: str | None) -> None:
    """Refuse the session of another user: it holds that user's messages."""
    present = connection.node.sessions.find(connection.client_id)
    if present is not None and present.username not in {None, username}:
        msg = "the client identifier is another user's"
        raise MqttError(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, msg)


def _check_will(connection: MqttConnection, will: Will) -> None:
    """Refuse a will that could not be published, while the client can still get the reason."""
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
