"""PUBACK, PUBREC, PUBREL and PUBCOMP (sections 3.4 to 3.7), a run at a time."""

from collections.abc import Sequence
from functools import partial

from adapters.mqtt.codec import encode_acks
from adapters.mqtt.connection.connection import MqttConnection
from adapters.mqtt.wire import AckRun, PacketType
from gateway.errors import StorageUnavailable


def handle(connection: MqttConnection, run: AckRun) -> None:
    """Pass acknowledgements to the session; answer PUBREL with PUBCOMP.

    The code for an unknown identifier is 0x92. PUBCOMP is sent when the release of the identifier
    is durable. A client that sends PUBREL before it has PUBREC gets PUBREC first nevertheless.
    """
    session = connection.session
    assert session is not None
    connection.node.counters.messages_received += len(run.packet_ids) - 1
    if run.kind is not PacketType.PUBREL:
        session.acked(run)
    elif connection.inbound.is_receiving(run.packet_ids):
        connection.inbound.wait_until_kept(partial(_release_after, connection, run))
    else:
        _release(connection, run)


def _release_after(connection: MqttConnection, run: AckRun) -> None:
    """PUBREL came before PUBREC went."""
    if not connection.is_closing:
        _release(connection, run)
        connection.go_on()


def _release(connection: MqttConnection, run: AckRun) -> None:
    session = connection.session
    assert session is not None
    connection.inbound.release(run)
    connection.node.publishing.release(
        session, run.packet_ids, partial(_on_released, connection, run)
    )


def _on_released(
    connection: MqttConnection,
    run: AckRun,
    codes: Sequence[int],
    error: StorageUnavailable | None,
) -> None:
    """Answer; without an answer the client says it again on its next connection."""
    if connection.is_closing:
        return
    if error is not None:
        connection.guard(connection.fail, error)
        return
    connection.node.counters.messages_sent += len(run.packet_ids)
    connection.send(
        encode_acks(
            PacketType.PUBCOMP,
            run.packet_ids,
            connection.version,
            codes if any(codes) else None,
        )
    )
