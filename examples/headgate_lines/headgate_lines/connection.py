"""One connection that speaks lines: a run of lines at a time, answered in one write."""

import asyncio
from collections.abc import Sequence
from itertools import groupby
from typing import Final, Protocol, TypeVar

from gateway.auth.ports import ANONYMOUS, Operation, Principal, ResourceType
from gateway.coalescer import Coalescer
from gateway.errors import (
    GatewayError,
    Overloaded,
    PeerError,
    Unauthenticated,
    Unauthorized,
)
from gateway.futures import await_done, set_result_if_pending
from gateway.kernel import Kernel
from gateway.listener import Connection, Listener
from gateway.model import DEFAULT_NAMESPACE, Buffer, TopicName, check_topic_name
from gateway.partition import Partition
from gateway.queues.model import DeliveryId
from gateway.records.codec import NO_HEADERS, decode_batch, encode_batch
from gateway.records.record_run import RecordRun
from gateway.tail import Tail
from gateway.topics.manager import Topic
from gateway.writer import Duplicate, Write
from headgate_lines.codec import (
    Authenticate,
    Command,
    Done,
    Later,
    Publish,
    Seen,
    Subscribe,
    Take,
    decode_command,
    encode_delivery,
    encode_error,
    encode_message,
    encode_ok,
    take_lines,
)
from headgate_lines.config import LinesConfig
from headgate_lines.positions import ReaderPositions
from headgate_lines.queue_receiver import QueueReceiver

T = TypeVar("T")
PARTITION: Final = 0
"""Lines have no keys, so they all go to the first partition and stay in order."""


class AdapterParts(Protocol):
    """The part of the adapter that a connection uses."""

    @property
    def coalescer(self) -> Coalescer:
        """Appends of delayed messages, shared by all connections."""
        ...

    @property
    def positions(self) -> ReaderPositions:
        """Positions of named readers."""
        ...


class LineConnection(Connection):
    """Serves the lines of one read before it reads on, so nothing piles up here."""

    def __init__(
        self, adapter: AdapterParts, kernel: Kernel, config: LinesConfig, listener: Listener
    ) -> None:
        super().__init__(listener)
        self._adapter = adapter
        self._kernel = kernel
        self._receiver = QueueReceiver(kernel.queues, wait_ms=config.take_wait_ms)
        self._config = config
        self._received = bytearray()
        self._serving: asyncio.Task[None] | None = None
        self._user = ANONYMOUS
        self._tails: dict[Partition, Tail] = {}
        self._first_wanted: dict[Partition, int] = {}

    # --- gateway.listener.Connection

    def received(self, size_bytes: int) -> None:
        """Begin to serve what is complete."""
        self._received += self.listener.receive_buffer[:size_bytes]
        lines = take_lines(self._received, line_bytes_max=self._config.line_bytes_max)
        if not self._received:
            self.frame_started_s = None
        elif lines or self.frame_started_s is None:
            self.frame_started_s = self.listener.now_s
        if not lines:
            return
        self.has_greeted = True
        self.hold_reads("serving")
        self._serving = self.listener.loop.create_task(self._serve(lines))
        self._serving.add_done_callback(self._served)

    def is_busy(self) -> bool:
        """A subscriber may be silent for as long as it likes."""
        return self._serving is not None or bool(self._tails)

    def has_unsaved_work(self) -> bool:
        """Lines that were read are answered before the node stops."""
        return self._serving is not None

    def hurry(self) -> None:
        """Answer a ``TAKE`` that waits: the node drains."""
        self._receiver.hurry()

    def closed(self) -> None:
        """Stop what was going on for this peer."""
        if self._serving is not None:
            self._serving.cancel()
        self._receiver.close()
        for tail in self._tails.values():
            tail.close()

    def resume_writing(self) -> None:
        """The peer has read; push on."""
        super().resume_writing()
        for tail in self._tails.values():
            tail.resume()

    # --- gateway.tail.Receiver

    def on_batches(self, partition: Partition, batches: Sequence[Buffer]) -> bool:
        """Write the records of a run of batches; False when the peer does not keep up."""
        self.guard(self._push, partition, batches)
        return self.is_writable

    def on_writes(self, partition: Partition, writes: Sequence[Write]) -> bool:
        """Write what has just been appended: it looks as it does in the log."""
        return self.on_batches(partition, [write.batch for write in writes])

    def on_tail_error(self, partition: Partition, error: GatewayError) -> None:
        """Say that nothing more will come of a topic: it is deleted, or another node serves it."""
        self._tails.pop(partition, None)
        self.send(encode_error(error))

    def _push(self, partition: Partition, batches: Sequence[Buffer]) -> None:
        first_wanted = self._first_wanted[partition]
        topic = partition.topic.name.name
        for batch in batches:
            try:
                records = decode_batch(batch)
            except GatewayError as error:  # A batch that lies is said so, and passed by.
                self.send(encode_error(error))
                continue
            self.send(
                *(
                    encode_message(topic, partition.number, record)
                    for record in records
                    if record.offset >= first_wanted
                )
            )

    # --- commands

    def _served(self, task: asyncio.Task[None]) -> None:
        self._serving = None
        if not task.cancelled():
            self.guard(task.result)
            self.release_reads("serving")

    async def _serve(self, lines: Sequence[bytes]) -> None:
        """Answer lines in order; publishes that follow each other are one append."""
        commands = [self._decode(line) for line in lines]
        for kind, run in groupby(commands, type):
            if kind is Publish:
                await self._publish([c for c in run if isinstance(c, Publish)])
                continue
            for command in run:
                self.send(await self._answer(command))

    def _decode(self, line: bytes) -> Command | GatewayError:
        try:
            return decode_command(line)
        except PeerError:
            raise
        except GatewayError as error:
            return error

    async def _answer(self, command: Command | GatewayError) -> bytes:
        try:
            if isinstance(command, GatewayError):
                raise command
            return await self._do(command)
        except PeerError:
            raise
        except GatewayError as error:
            return encode_error(error)

    async def _do(self, command: Command) -> bytes:
        """Do a command other than ``PUB`` and return its answer."""
        match command:
            case Authenticate(username, password):
                authenticator = self._kernel.authenticator
                self._user = await authenticator.authenticate_plain(username, password)
            case Later(delay_ms, topic, text):
                await self._publish_later(delay_ms, topic, text)
            case Subscribe(topic, reader):
                await self._subscribe(topic, reader)
            case Seen(topic, reader, offset):
                partition = await self._partition(topic, Operation.READ)
                await self._adapter.positions.keep(partition, reader, offset + 1)
            case Take(queue):
                self._check(queue, Operation.READ)
                delivery = await self._receiver.take(queue)
                return b"+NONE\n" if delivery is None else encode_delivery(queue, delivery)
            case Done(queue, partition, offset, attempt):
                self._check(queue, Operation.READ)
                await self._receiver.done(queue, DeliveryId(partition, offset, attempt))
            case _:
                return b"+PONG\n"
        return encode_ok()

    async def _publish(self, run: Sequence[Publish]) -> None:
        """Append a run atomically, one batch per topic, and answer each line.

        Lines to a topic that is refused, such as one of another node, do not keep out the rest.
        """
        texts: dict[str, list[str]] = {}
        for command in run:
            texts.setdefault(command.topic, []).append(command.text)
        partitions: dict[str, Partition] = {}
        refused: dict[str, GatewayError] = {}
        for topic in texts:
            try:
                partitions[topic] = await self._partition(topic, Operation.WRITE)
            except GatewayError as error:
                refused[topic] = error
        offsets: dict[Partition, int] = {}
        try:
            offsets = await self._append({p: texts[topic] for topic, p in partitions.items()})
        except GatewayError as error:  # none is kept
            refused |= dict.fromkeys(partitions, error)
        for command in run:
            if command.topic in refused:
                self.send(encode_error(refused[command.topic]))
                continue
            partition = partitions[command.topic]
            self.send(encode_ok(partition.number, offsets[partition]))
            offsets[partition] += 1

    async def _publish_later(self, delay_ms: int, name: str, text: str) -> None:
        """Return once the message is kept; it has an offset when its time has come."""
        partition = await self._partition(name, Operation.WRITE)
        now_unix_ms = self._kernel.clock.unix_ms()
        run = RecordRun(None, (text.encode(),), NO_HEADERS, now_unix_ms)
        run.deliver_at_unix_ms = now_unix_ms + delay_ms
        coalescer = self._adapter.coalescer
        await await_done(lambda on_done: coalescer.add(partition, run, on_done))

    async def _append(self, texts: dict[Partition, list[str]]) -> dict[Partition, int]:
        """Return the base offsets once all texts are kept."""
        if not texts:
            return {}
        broker, loop = self._kernel.broker, self.listener.loop
        if broker.append_queue.is_saturated:
            low: asyncio.Future[None] = loop.create_future()
            broker.append_queue.hold(lambda: set_result_if_pending(low, None))
            await low
        now_unix_ms = self._kernel.clock.unix_ms()
        writes = []
        for partition, lines in texts.items():
            batch = encode_batch([(now_unix_ms, None, line.encode(), ()) for line in lines])
            write = broker.prepare(partition, batch)
            assert not isinstance(write, Duplicate), "only idempotent producers repeat"
            writes.append(write)
        await await_done(lambda on_done: broker.append(writes, on_done))
        return {write.partition: write.base_offset for write in writes}

    async def _subscribe(self, name: str, reader: str) -> None:
        if len(self._tails) >= self._config.subscriptions_max:
            msg = f"subscriptions_max is {self._config.subscriptions_max}"
            raise Overloaded(msg)
        partition = await self._partition(name, Operation.READ)
        if partition not in self._tails:
            end = partition.stable_end
            known = self._adapter.positions.find(partition, reader) if reader else None
            start = end if known is None else min(max(known, partition.log_start_offset), end)
            self._first_wanted[partition] = start
            self._tails[partition] = self._kernel.broker.tail(partition, start, self)

    async def _partition(self, name: str, operation: Operation) -> Partition:
        """Return where a topic's lines go, when the peer may go there.

        Errors: ``NotLeader`` when another node serves it; those of ``_check`` and ``_topic``.
        """
        self._check(name, operation)
        return self._kernel.broker.partition(await self._topic(name), PARTITION)

    def _check(self, name: str, operation: Operation) -> None:
        """Check that the peer may do that. Errors: ``Unauthenticated``, ``Unauthorized``."""
        principal = Principal(self._user, "lines", self.peer_host)
        if principal.is_anonymous and self._kernel.authenticator.required:
            msg = "AUTH user password comes first"
            raise Unauthenticated(msg)
        if not self._kernel.authorizer.allows(principal, operation, ResourceType.TOPIC, name):
            msg = f"{self._user} may not {operation.value} topic {name}"
            raise Unauthorized(msg)

    async def _topic(self, name: str) -> Topic:
        full_name = TopicName(DEFAULT_NAMESPACE, check_topic_name(name))
        topics = self._kernel.topics
        return topics.find(full_name) or await topics.auto_create(full_name)
