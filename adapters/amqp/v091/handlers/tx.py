"""The class tx: publishes and settlements of a channel that take effect together."""

from functools import partial

from adapters.amqp.v091.channel import Channel
from adapters.amqp.v091.errors import AmqpFault, ReplyCode, to_fault
from adapters.amqp.v091.methods.tx import (
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxRollbackOk,
    TxSelect,
    TxSelectOk,
)
from adapters.amqp.v091.sources import Source, acknowledge_in, settle_as
from adapters.amqp.v091.transaction import Transaction
from gateway.errors import GatewayError, StorageUnavailable
from gateway.queues.joint_acks import JointAcks
from gateway.queues.model import Outcome
from gateway.queues.unacked import Unacked


def select(channel: Channel, _method: TxSelect) -> None:
    """Hold back publishes and settlements from now on."""
    if channel.confirms is not None:
        text = "cannot switch from confirm to tx mode"
        raise AmqpFault(ReplyCode.PRECONDITION_FAILED, text)
    if channel.transaction is None:
        channel.transaction = Transaction(channel.connection.transaction_room)
    channel.send(TxSelectOk())


def _transaction(channel: Channel) -> Transaction:
    if channel.transaction is None:
        text = "channel is not transactional"
        raise AmqpFault(ReplyCode.PRECONDITION_FAILED, text)
    return channel.transaction


def commit(channel: Channel, _method: TxCommit) -> None:
    """Publish and settle all that was held back; answer when it is durable.

    Publishes and acknowledgements are one append: after a crash all of them count, or none.
    Messages are returned or rejected after it.
    """
    publishes, settlements = _transaction(channel).take()
    channel.wait()
    connection = channel.connection
    acks = connection.node.kernel.queues.joint_acks()
    acknowledge_in(acks, (one for one, outcome in settlements if outcome is Outcome.ACK))
    on_done = partial(connection.guard, _on_committed, channel, settlements, acks)
    try:
        beside = acks.parts()
        connection.publisher.publish_all(channel, publishes, on_done, beside=beside)
    except GatewayError as error:
        connection.node.disk_alarm.note(error)
        acks.arrived(StorageUnavailable(str(error)))
        channel.unacked.put_back([one for one, _ in settlements])
        raise


def _on_committed(
    channel: Channel,
    settlements: list[tuple[Unacked[Source], Outcome]],
    acks: JointAcks,
    error: StorageUnavailable | None,
) -> None:
    channel.connection.node.disk_alarm.note(error)
    acks.arrived(error)
    if error is not None and channel.is_ended:
        settle_as([one for one, _ in settlements], Outcome.RELEASE)
        return
    if error is not None:
        channel.unacked.put_back([one for one, _ in settlements])
        fault = to_fault(error)
        fault.index = TxCommit.INDEX
        channel.connection.fail_channel(channel, fault)
        return
    for one, outcome in settlements:
        if outcome is Outcome.ACK:
            one.source.freed(one.size)
        else:
            settle_as((one,), outcome)
    if not channel.is_ended:
        channel.send(TxCommitOk())
        channel.go_on()


def rollback(channel: Channel, _method: TxRollback) -> None:
    """Forget publishes; messages in flight are in flight again, and not requeued."""
    _transaction(channel)
    channel.roll_back()
    channel.send(TxRollbackOk())
