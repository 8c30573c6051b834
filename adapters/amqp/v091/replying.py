"""Direct reply-to: answers on their way to the channels of their requesters."""

from collections.abc import Sequence
from typing import NamedTuple

from adapters.amqp.replies import Requester
from adapters.amqp.v091.errors import AmqpFault, ReplyCode
from adapters.amqp.v091.ports import ChannelPort, ConnectionPort
from gateway.errors import StorageUnavailable
from gateway.storage import OnDone


class Answer(NamedTuple):
    """Messages to addresses of direct reply-to, alike but for their bodies."""

    addresses: tuple[str, ...]
    routing_key: str
    properties: bytes
    bodies: Sequence[bytes]


def reply_address(channel: ChannelPort) -> str:
    """Return where answers to the channel go. Error: ``AmqpFault`` 406 without a consumer."""
    address = channel.reply_address
    if address is None:
        text = "fast reply consumer does not exist"
        raise AmqpFault(ReplyCode.PRECONDITION_FAILED, text)
    return address


def find_requesters(connection: ConnectionPort, addresses: Sequence[str]) -> list[Requester]:
    """Return the requesters of addresses, without those that have gone."""
    find = connection.node.requesters.find
    found = (find(connection.namespace, address) for address in addresses)
    return [one for one in found if one is not None]


def reply(connection: ConnectionPort, answer: Answer) -> bool:
    """Send an answer to its requesters; say whether there was one."""
    requesters = find_requesters(connection, answer.addresses)
    for requester in requesters:
        requester.on_replies(answer.routing_key, answer.properties, answer.bodies)
    return bool(requesters)


def reply_all(
    connection: ConnectionPort,
    answers: Sequence[Answer],
    on_done: OnDone,
    error: StorageUnavailable | None,
) -> None:
    """Send the answers of a transaction once it is committed, before ``on_done`` says so."""
    if error is None:
        for answer in answers:
            reply(connection, answer)
    on_done(error)
