"""The class connection: handshake, login, tuning, opening a vhost, closing."""

from functools import partial

from adapters.amqp.config import FRAME_BYTES_MIN
from adapters.amqp.limits import check_connection_limits
from adapters.amqp.names import to_namespace
from adapters.amqp.permissions import Access
from adapters.amqp.v091.authentication import PLAIN, Login
from adapters.amqp.v091.client_facts import ClientFacts
from adapters.amqp.v091.connection import AmqpConnection
from adapters.amqp.v091.errors import AmqpFault, ReplyCode
from adapters.amqp.v091.fields import Table
from adapters.amqp.v091.methods.connection import (
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionSecureOk,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
)
from adapters.amqp.v091.session import State
from gateway.auth.ports import Principal
from gateway.errors import GatewayError, Unauthenticated


async def start_ok(connection: AmqpConnection, method: ConnectionStartOk) -> None:
    """Log in by the mechanism that the client has chosen."""
    properties = method.client_properties
    connection.client = ClientFacts.of(properties, method.mechanism)
    capabilities = properties.value("capabilities")
    if isinstance(capabilities, Table):
        connection.client_capabilities = frozenset(
            name for name, field in capabilities if field.value is True
        )
    await _log_in(connection, _login(connection, method.mechanism), method.response)


async def secure_ok(_connection: AmqpConnection, method: ConnectionSecureOk) -> None:
    """Refuse: no mechanism that is served has a second step."""
    raise AmqpFault(ReplyCode.COMMAND_INVALID, f"{method.NAME} without a challenge")


def _login(connection: AmqpConnection, mechanism: str) -> Login:
    return Login(
        mechanism,
        connection.config,
        connection.node.kernel,
        connection.transport,
        connection.peer_host,
    )


async def _log_in(connection: AmqpConnection, login: Login, response: bytes) -> None:
    try:
        name = await login.receive(response)
    except Unauthenticated as error:
        connection.note("Unauthenticated", str(error))
        fault = AmqpFault(
            ReplyCode.ACCESS_REFUSED,
            f"Login was refused using authentication mechanism {login.mechanism}. For details "
            "see the broker logfile.",
        )
        if "authentication_failure_close" in connection.client_capabilities:
            connection.end(fault)
        else:
            connection.close()
        return
    if connection.state is not State.START:  # it was closed meanwhile
        return
    connection.principal = Principal(name, "amqp", connection.peer_host)
    connection.user_name = login.user_name or name
    connection.has_greeted = True
    connection.reader.frame_bytes_max = connection.config.frame_bytes_max
    connection.state = State.TUNE
    tuning = connection.tuning
    connection.send_method(
        0, ConnectionTune(tuning.channels_max, tuning.frame_bytes_max, tuning.heartbeat_s)
    )


def tune_ok(connection: AmqpConnection, method: ConnectionTuneOk) -> None:
    """Take the client's limits."""
    connection.tuning.agree(method, frame_bytes_min=FRAME_BYTES_MIN)
    connection.reader.frame_bytes_max = connection.tuning.frame_bytes_max
    connection.heartbeats.heartbeat_s = connection.tuning.heartbeat_s
    connection.state = State.OPENING


def open_(connection: AmqpConnection, method: ConnectionOpen) -> None:
    """Open a vhost."""
    vhost = method.virtual_host
    node = connection.node
    if vhost not in node.vhosts:
        raise AmqpFault(ReplyCode.NOT_ALLOWED, f"vhost {vhost} not found")
    if not node.permissions.may_open(connection.principal, vhost):
        text = f"access to vhost '{vhost}' refused for user '{connection.user_name}'"
        raise AmqpFault(ReplyCode.NOT_ALLOWED, text)
    check_connection_limits(node, vhost, connection.user_name)
    node.opened.add(connection)
    connection.vhost = vhost
    connection.namespace = to_namespace(vhost)
    connection.access = Access(
        node.kernel.authorizer,
        connection.principal,
        connection.namespace,
        vhost,
        node.topic_permissions,
    )
    connection.state = State.OPEN
    connection.keep_before_login(0)
    connection.send_method(0, ConnectionOpenOk())


def close(connection: AmqpConnection, _method: ConnectionClose) -> None:
    """Answer, and close the socket, when what the client has sent before is done."""
    connection.leave(partial(_close, connection))


def _close(connection: AmqpConnection) -> None:
    connection.close_channels()
    connection.send_method(0, ConnectionCloseOk())
    connection.state = State.CLOSED
    connection.close_gently()


def close_ok(connection: AmqpConnection, _method: ConnectionCloseOk) -> None:
    """Close the socket after the client has taken the server's close."""
    connection.state = State.CLOSED
    connection.close()


async def update_secret(connection: AmqpConnection, method: ConnectionUpdateSecret) -> None:
    """Log in again with a new password, as the same user."""
    try:
        await _login(connection, PLAIN).check(
            connection.user_name, method.new_secret.decode(errors="replace")
        )
    except GatewayError as error:
        raise AmqpFault(ReplyCode.NOT_ALLOWED, "New secret was refused") from error
    connection.send_method(0, ConnectionUpdateSecretOk())
