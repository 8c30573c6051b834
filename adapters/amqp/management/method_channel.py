"""AMQP's methods, called for a user of the HTTP API: same checks, same texts, as over AMQP."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, cast

from adapters.amqp.management.call import Call
from adapters.amqp.permissions import Access
from adapters.amqp.v091.channel import Channel
from adapters.amqp.v091.confirms import Confirms
from adapters.amqp.v091.framing import encode_method_frame
from adapters.amqp.v091.methods.basic import BasicPublish
from adapters.amqp.v091.methods.model import Method
from adapters.amqp.v091.ports import ConnectionPort
from adapters.amqp.v091.properties import Properties, encode_properties
from adapters.amqp.v091.publishing import ConnectionPublisher, PublishedRun
from adapters.amqp.v091.session import Tuning
from gateway.futures import set_result_if_pending
from gateway.model import Buffer

_HEAD_BYTES: Final = 7  # of a frame, before its payload; one byte is behind it
_FRAME_BYTES_MAX: Final = 131_072


class MethodChannel:
    """Channel of one request, with the parts that methods of queues and exchanges look at.

    It is its own connection: one that has opened the vhost of the path.
    """

    def __init__(self, call: Call) -> None:
        self.node = call.node
        self.config = call.node.config
        self.vhost = call.vhost
        self.namespace = call.namespace
        self.user_name = call.caller.user_name
        self.is_impersonator = False
        self.holder = 0
        self.access = Access(
            call.node.kernel.authorizer,
            call.caller.principal,
            self.namespace,
            self.vhost,
            call.node.topic_permissions,
        )
        self.tuning = Tuning(1, _FRAME_BYTES_MAX, 0)
        self.is_ended = False
        self.is_closing = False
        self.last_queue = ""
        self.number = 1
        self.publishes = None
        self.confirms = Confirms()
        self.is_returned = False
        self._confirmed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    @property
    def connection(self) -> "MethodChannel":
        """The connection."""
        return self

    def send(self, *sent: Method | Buffer) -> None:
        """Take an answer; bytes are those of a returned message."""
        self.is_returned = self.is_returned or not isinstance(sent[0], Method)

    def note(self, _kind: str, _message: str) -> None:
        """Leave faults to the answer of the request."""

    def confirm_soon(self) -> None:
        """Note that the publish is decided."""
        for confirm in self.confirms.take():
            set_result_if_pending(self._confirmed, not confirm.is_nack)

    async def call(
        self, method: Callable[[Channel, Any], Coroutine[Any, Any, None]], sent: Method
    ) -> None:
        """Carry out a method. Errors: ``AmqpFault``, those of the gateway."""
        await method(cast("Channel", self), sent)

    async def publish(
        self, exchange: str, routing_key: str, properties: Properties, body: bytes
    ) -> tuple[bool, bool]:
        """Publish a message; say whether it was routed, and whether all queues took it."""
        method = BasicPublish(0, exchange, routing_key, mandatory=True, immediate=False)
        payload = encode_method_frame(self.number, method)[_HEAD_BYTES:-1]
        publisher = ConnectionPublisher(cast("ConnectionPort", self))
        run = PublishedRun(payload, encode_properties(properties), [body])
        publisher.publish(cast("Channel", self), run)
        is_taken = await self._confirmed
        return not self.is_returned, is_taken
