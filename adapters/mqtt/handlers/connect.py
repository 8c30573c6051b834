"""CONNECT (section 3.1): authentication, access rules and session of a client.

Reasons to refuse are checked in this order: the node drains, too many connections per second, the
client identifier, the authentication, the will. Then the session is opened, and CONNACK is sent
when it is durable.
"""

from functools import partial

from adapters.mqtt.access.authentication import (
    EnhancedExchange,
    authenticate_password,
    authenticate_token,
    check_anonymous,
    has_token,
)
from adapters.mqtt.connection.connection import MqttConnection
from adapters.mqtt.errors import MqttError, ReasonCode
from adapters.mqtt.handlers import auth
from adapters.mqtt.handlers.admission import admit
from adapters.mqtt.wire import Connect, Version
from gateway.auth.certificates import certificate_user
from gateway.auth.login_throttle import Peer
from gateway.errors import GatewayError, as_value


def handle(connection: MqttConnection, connect: Connect) -> None:
    """Process the first packet; all later ones wait for CONNACK."""
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


def _authenticate(connection: MqttConnection, connect: Connect) -> None:
    authenticator, logins = connection.node.authenticator, connection.node.logins
    peer, tokens = Peer("mqtt", connection.peer_host), connection.node.tokens
    if connect.authentication_method is not None:
        connection.exchange = EnhancedExchange(
            connect.authentication_method, authenticator, logins, peer, tokens
        )
        if connect.authentication_data is not None:
            auth.receive(connection, connect.authentication_data)
        else:  # a client-first message may come with AUTH instead
            auth.ask(connection, b"")
        return
    if tokens is not None and has_token(connect):
        connection.wait()
        connection.start(
            authenticate_token(connect, tokens, logins, peer),
            partial(_on_password, connection),
        )
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
    connection: MqttConnection, username: str | None, error: GatewayError | None
) -> None:
    if error is not None:
        connection.fail(error)
    else:
        admit(connection, username)
