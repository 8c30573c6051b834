"""AUTH (section 3.15): enhanced authentication, before CONNACK and anew later (4.12).

While a client authenticates again it continues to publish and receive as its former user. It must
end as the same user, because a session belongs to one user.
"""

from functools import partial

from adapters.mqtt.access.authentication import EnhancedExchange
from adapters.mqtt.codec import encode_auth
from adapters.mqtt.connection.connection import MqttConnection
from adapters.mqtt.errors import MqttError, ReasonCode
from adapters.mqtt.handlers.admission import admit
from adapters.mqtt.session import State
from adapters.mqtt.wire import Auth
from gateway.auth.login_throttle import Peer
from gateway.auth.scram_login import LoginStep
from gateway.errors import GatewayError, Unauthenticated


def handle(connection: MqttConnection, packet: Auth) -> None:
    """Take the client's next message, or begin anew."""
    asked = connection.connect
    assert asked is not None
    method = asked.authentication_method
    if method is None or packet.authentication_method != method:
        msg = "AUTH is not of the method that CONNECT named"  # MQTT-4.12.0-5, MQTT-4.12.1-1
        raise MqttError(ReasonCode.PROTOCOL_ERROR, msg)
    if packet.reason_code is ReasonCode.RE_AUTHENTICATE:
        if connection.state is not State.CONNECTED or connection.exchange is not None:
            msg = "an authentication is under way"
            raise MqttError(ReasonCode.PROTOCOL_ERROR, msg)
        node = connection.node
        connection.exchange = EnhancedExchange(
            method,
            node.authenticator,
            node.logins,
            Peer("mqtt", connection.peer_host),
            node.tokens,
        )
    elif (
        packet.reason_code is not ReasonCode.CONTINUE_AUTHENTICATION
        or connection.exchange is None
        or connection.is_working
    ):
        msg = f"AUTH with reason code {packet.reason_code:#04x} at this place"
        raise MqttError(ReasonCode.PROTOCOL_ERROR, msg)
    receive(connection, packet.authentication_data or b"")


def receive(connection: MqttConnection, data: bytes) -> None:
    """Let the exchange take a message of the client."""
    assert connection.exchange is not None
    if connection.state is not State.CONNECTED:
        connection.wait()
    connection.start(connection.exchange.receive(data), partial(_on_step, connection))


def ask(connection: MqttConnection, data: bytes) -> None:
    """Send the server's message and wait for the client's."""
    exchange = connection.exchange
    assert exchange is not None
    packet = Auth(
        reason_code=ReasonCode.CONTINUE_AUTHENTICATION,
        authentication_method=exchange.method,
        authentication_data=data,
    )
    connection.reader.expect_auth()
    _send(connection, packet)


def _on_step(
    connection: MqttConnection, step: LoginStep | None, error: GatewayError | None
) -> None:
    if error is not None:
        connection.fail(error)
        return
    assert step is not None
    if step.username is None:
        ask(connection, step.data)
        if connection.state is not State.CONNECTED:
            connection.go_on()
        return
    exchange, connection.exchange = connection.exchange, None
    assert exchange is not None
    if connection.state is not State.CONNECTED:
        admit(connection, step.username, step.data)
        return
    if step.username != connection.principal.name:
        msg = "authenticated anew as another user"
        connection.fail(Unauthenticated(msg))
        return
    packet = Auth(
        authentication_method=exchange.method,
        authentication_data=step.data,
    )
    _send(connection, packet)


def _send(connection: MqttConnection, packet: Auth) -> None:
    connection.send_packet(encode_auth(packet, bytes_max=connection.packet_bytes_max))
