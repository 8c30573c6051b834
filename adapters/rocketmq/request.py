"""Request of a client, with the means to answer it once, at any later time."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from time import perf_counter
from typing import Any, Protocol

from adapters.rocketmq.node import RocketMqNode
from adapters.rocketmq.ports import Client
from adapters.rocketmq.remoting.codec import encode_frame
from adapters.rocketmq.remoting.errors import code_of, remark_of
from adapters.rocketmq.remoting.wire import NO_FIELDS, Command, ResponseCode
from gateway.auth.ports import Operation, Principal, ResourceType
from gateway.errors import GatewayError, Unauthorized, as_value
from gateway.model import Buffer


class AnsweredClient(Client, Protocol):
    """Connection that takes the responses to its requests."""

    def on_done(self, request: "Request", frame: bytes | None) -> None:
        """Take the response of a request; None for one that has none."""
        ...


class Request:
    """Request that is being served. ``cancel`` and ``hurry`` are set by handlers that wait."""

    __slots__ = (
        "_task", "begun_s", "cancel", "client", "command", "hurry", "is_done", "node",
        "principal", "pulled_bytes", "unacknowledged_bytes",
    )  # fmt: skip

    def __init__(
        self,
        command: Command,
        node: RocketMqNode,
        client: AnsweredClient,
        principal: Principal,
    ) -> None:
        self.command = command
        self.node = node
        self.client = client
        self.principal = principal
        self.begun_s = perf_counter()
        self.is_done = False
        self.pulled_bytes = 0
        """Bytes of messages in the response, taken from the budget of pulls."""
        self.unacknowledged_bytes = 0
        """Bytes of the request that its connection counts until the answer."""
        self.cancel: Callable[[], None] | None = None
        self.hurry: Callable[[], None] | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def fields(self) -> Mapping[str, str]:
        """The fields of the request."""
        return self.command.fields

    def authorize(self, operation: Operation, kind: ResourceType, name: str) -> None:
        """Check a permission. Error: ``Unauthorized``."""
        if not self.node.kernel.authorizer.allows(self.principal, operation, kind, name):
            remark = f"{self.principal.name} may not {operation.value} {kind.name} {name[:80]}"
            raise Unauthorized(remark)

    def reply(
        self,
        fields: Mapping[str, str] = NO_FIELDS,
        body: Buffer = b"",
        *,
        code: ResponseCode = ResponseCode.SUCCESS,
        remark: str | None = None,
    ) -> None:
        """Answer the request, unless its connection has ended."""
        if self.is_done:
            return
        self.is_done = True
        self.cancel = self.hurry = None
        frame = None
        if not self.command.is_oneway:
            frame = encode_frame(self.command.answer(code, fields, body, remark))
        self.client.guard(self.client.on_done, self, frame)

    def fail(self, error: GatewayError) -> None:
        """Answer with the code of an error."""
        self.reply(code=code_of(error), remark=remark_of(error))

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine that answers; a ``GatewayError`` of it is the answer."""
        self._task = asyncio.get_running_loop().create_task(self._run(work))
        self._task.add_done_callback(self._on_task_done)

    async def _run(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except GatewayError as error:
            self.fail(as_value(error))

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled():
            self.client.guard(task.result)  # a bug closes the connection

    def abandon(self) -> None:
        """End the work on it: its connection has ended, and nobody is answered."""
        self.is_done = True
        cancel, self.cancel = self.cancel, None
        self.hurry = None
        if cancel is not None:
            cancel()
        if self._task is not None:
            self._task.cancel()


Handler = Callable[[Request], None]
"""Serves a request, now or later. A ``GatewayError`` that it raises is the answer."""
Handlers = Mapping[int, Handler]
