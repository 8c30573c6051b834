"""Queues as AMQP declares them: flags and arguments that are kept with a queue, and compared."""

import base64
import json
from typing import Final, NamedTuple

from adapters.amqp.names import QUEUE_NAME
from adapters.amqp.queue_arguments import CLASSIC, check_equal_arguments, queue_type
from adapters.amqp.v091.errors import AmqpFault, ReplyCode
from adapters.amqp.v091.fields import Table, decode_table, encode_table
from gateway.queues.manager import Queue

_DECLARED: Final = "amqp.queue"  # attribute of a queue
NODE: Final = "amqp.node"  # attribute: id of the node at which it was declared


class Declaration(NamedTuple):
    """Properties of a queue. ``exclusive``: it ends with the connection that declared it."""

    durable: bool
    exclusive: bool
    auto_delete: bool
    arguments: Table

    def to_attributes(self, name: str, node_id: str) -> dict[str, str]:
        """Return the attributes to be kept with the queue of that name, declared at a node."""
        table = base64.b64encode(encode_table(self.arguments)).decode("ascii")
        flags = [self.durable, self.exclusive, self.auto_delete]
        text = json.dumps({"flags": flags, "arguments": table}, separators=(",", ":"))
        return {_DECLARED: text, QUEUE_NAME: name, NODE: node_id}

    @classmethod
    def of(cls, queue: Queue) -> "Declaration | None":
        """Return the declaration of a queue; None for one that another protocol has made."""
        text = queue.attributes.get(_DECLARED)
        if text is None:
            return None
        found = json.loads(text)
        table, _ = decode_table(base64.b64decode(found["arguments"]))
        durable, exclusive, auto_delete = found["flags"]
        return cls(durable, exclusive, auto_delete, table)


def check_replicated(wanted: Declaration, resource: str) -> None:
    """Check the flags of a new quorum queue or stream. Error: ``AmqpFault`` 406."""
    if queue_type(wanted.arguments) == CLASSIC:
        return
    flags = (
        ("auto-delete", wanted.auto_delete),
        ("exclusive-owner", wanted.exclusive),
        ("non-durable", not wanted.durable),
    )
    for name, is_set in flags:
        if is_set:
            text = f"invalid property '{name}' for {resource}"
            raise AmqpFault(ReplyCode.PRECONDITION_FAILED, text)


def name_of(queue: Queue) -> str:
    """Return the name of a queue in AMQP."""
    return queue.attributes.get(QUEUE_NAME, queue.name.name)


def check_equal(received: Declaration, queue: Queue, resource: str) -> None:
    """Check that a declaration repeats that of a queue. Errors: ``AmqpFault`` 405 and 406.

    A queue of another protocol is taken as it is.
    """
    current = Declaration.of(queue)
    if current is None:
        return
    if received.exclusive != current.exclusive:
        raise locked(resource)
    check_flags(received, current, resource)
    check_equal_arguments(received.arguments, current.arguments, resource)


def check_flags(received: Declaration, current: Declaration, resource: str) -> None:
    """Check that a declaration repeats the flags of another. Error: ``AmqpFault`` 406."""
    for name in ("durable", "auto_delete"):
        new, old = getattr(received, name), getattr(current, name)
        if new != old:
            raise AmqpFault(
                ReplyCode.PRECONDITION_FAILED,
                f"inequivalent arg '{name}' for {resource}: received '{_text(new)}' but current "
                f"is '{_text(old)}'",
            )


def _text(value: bool) -> str:  # noqa: FBT001
    return "true" if value else "false"


def locked(resource: str) -> AmqpFault:
    """Return the fault for a queue that is another connection's own."""
    return AmqpFault(
        ReplyCode.RESOURCE_LOCKED,
        f"cannot obtain exclusive access to locked {resource}. It could be originally declared on "
        "another connection or the exclusive property value does not match that of the original "
        "declaration.",
    )
