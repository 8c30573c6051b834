"""A pending fetch: reads, waits for data, and responds within the client's limits."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final

from adapters.kafka.access.authorization import topic_for
from adapters.kafka.codec import TopicRef
from adapters.kafka.codecs.fetch_codec import (
    FetchPartition,
    FetchRequest,
    encode_fetch_response,
)
from adapters.kafka.errors import ErrorCode
from adapters.kafka.fetching.fetched_partitions import (
    ByteAllowance,
    encode_answer,
    remove_unauthorized,
    trace_received,
)
from adapters.kafka.fetching.ports import FetchReply, FetchWait, Topics
from adapters.kafka.metadata.broker_addresses import other_brokers
from adapters.kafka.metadata.leader_epochs import check_current
from adapters.kafka.node.fetch_target import FetchTarget
from adapters.kafka.node.large_requests import (
    SLICE_ELEMENTS,
    join_slices,
    slices,
    yield_to_loop,
)
from adapters.kafka.session import Session
from gateway.auth.ports import Operation
from gateway.errors import GatewayError, TopicNotFound, as_value
from gateway.model import Buffer
from gateway.partition import Partition
from gateway.records.expired import without_expired

READ_UNCOMMITTED: Final = 0  # isolation level; 1 is READ_COMMITTED (KIP-98)
ROOM_WAIT_S_MAX: Final = 5.0  # beyond the client's wait; request timeouts of clients are longer


class PendingFetch:
    """A fetch that reads again until it has enough bytes, its time is over or it fails."""

    __slots__ = (
        "_budget", "_bytes_max", "_bytes_min", "_deadline_s", "_element_count", "_has_failed",
        "_has_more", "_is_committed", "_loop", "_node", "_readable", "_reply", "_revision",
        "_session", "_taken_bytes", "_task", "_timer", "_topics", "_version", "_waiters",
    )  # fmt: skip

    def __init__(
        self, request: FetchRequest, session: Session, version: int, reply: FetchReply
    ) -> None:
        node = session.node
        self._node = node
        self._budget, self._revision = node.fetch_budget, node.authorizer.revision
        self._session, self._version, self._reply = session, version, reply
        self._loop = asyncio.get_running_loop()
        wait_ms = min(max(request.max_wait_ms, 0), node.config.fetch_wait_ms_max)
        self._deadline_s = self._loop.time() + wait_ms / 1000
        self._bytes_max = min(request.bytes_max, node.config.fetch_bytes_max)
        if reply.meter is not None:
            self._bytes_max = reply.meter.fetch_bytes_max(self._bytes_max)
        self._bytes_min = min(request.bytes_min, self._bytes_max) if wait_ms else 0
        self._is_committed = request.isolation_level != READ_UNCOMMITTED
        self._has_failed = False
        self._taken_bytes = 0
        self._waiters: list[FetchWait] = []
        self._has_more = False  # data arrived while a large fetch was reading
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._topics: list[tuple[TopicRef, list[FetchTarget]]] = []
        self._readable: list[FetchTarget] = []
        self._element_count = 0
        reply.cancel = self._cancel

    @property
    def _is_over(self) -> bool:
        """Whether the response is sent, or nobody waits for it any more."""
        return self._reply.cancel is None

    def resolve(self, topics: Topics) -> None:
        """Look up the partitions of some topics of the request, in order."""
        for ref, partitions in topics:
            found = self._resolve(ref, partitions)
            self._topics.append((ref, found))
            self._element_count += 1 + len(found)
            self._readable += [target for target in found if target.partition is not None]

    async def join(self, topics: Topics) -> None:
        """Join the topics that were resolved in several slices."""
        large_request_thread = self._node.large_request_thread
        self._topics = await large_request_thread.run(join_slices, topics, [self._topics])

    def _resolve(
        self, ref: TopicRef, partitions: Sequence[FetchPartition]
    ) -> list[FetchTarget]:
        try:
            topic = topic_for(self._session, ref, Operation.READ)
            if topic.is_internal:
                msg = f"{topic.name.name} is the gateway's own"
                raise TopicNotFound(msg)
        except GatewayError as error:
            return [FetchTarget(request, None, as_value(error)) for request in partitions]
        targets = []
        for request in partitions:
            partition = None
            try:
                partition = self._node.broker.partition(topic, request.number)
                check_current(partition, request.leader_epoch)
            except GatewayError as error:
                if not isinstance(error, TopicNotFound):
                    self._has_failed = True
                targets.append(FetchTarget(request, partition, as_value(error)))
            else:
                targets.append(FetchTarget(request, partition, None))
        return targets

    def start(self) -> None:
        """Read for the first time, when all topics are resolved."""
        self.attempt()

    # --- reading

    def attempt(self) -> None:
        """Read the available batches; respond, or wait for more."""
        self._reply.hurry = self._hurry
        if self._budget.free_bytes <= 0:
            self._wait_for_room()
            return
        allowance = self._allowance()
        if len(self._readable) > SLICE_ELEMENTS:
            self._start(self._read_large(allowance))
            return
        uncached = self._read(self._readable, allowance)
        if uncached:
            self._start(self._read_disk(uncached))
        else:
            self._answer_or_wait()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = self._loop.create_task(work)
        self._task.add_done_callback(partial(self._reply.guard, self._on_task_done))

    def _allowance(self) -> ByteAllowance:
        """Return the bytes that the response may take.

        No response takes more than half of the free bytes, so that a few slow consumers leave
        some for others; while producers append it is smaller still (see ``fetch_pacing``).
        """
        bytes_max = self._bytes_max
        if self._bytes_min <= 1:  # a larger minimum must stay reachable
            bytes_max = self._node.fetch_pacing.bytes_max(bytes_max)
        return ByteAllowance(min(bytes_max, max(self._budget.free_bytes // 2, 1)))

    def _read(
        self, readable: Sequence[FetchTarget], allowance: ByteAllowance
    ) -> list[FetchTarget]:
        """Read from memory and the page cache; return the targets that need the disk.

        The bytes read, and the limits of those to be read, are taken from the budget.
        """
        free_bytes, is_first = allowance.free_bytes, allowance.is_first
        uncached = []
        for target in readable:
            target.reset(is_committed=self._is_committed)
            if target.error is not None or (free_bytes <= 0 and not is_first):
                continue
            target.bytes_max = max(min(target.request.bytes_max, free_bytes), 1)
            batches = self._read_cached(target)
            if batches is None:
                uncached.append(target)
                size_bytes = target.bytes_max
            else:
                size_bytes = sum(map(len, batches))
                if not size_bytes:
                    continue
                if size_bytes > free_bytes and not is_first:
                    free_bytes = 0  # only the first batch may exceed the limits
                    continue
                target.batches = batches
                if self._is_committed:
                    target.find_aborted()
            free_bytes -= size_bytes
            is_first = False
            self._take(size_bytes)
        allowance.free_bytes, allowance.is_first = free_bytes, is_first
        return uncached

    async def _read_large(self, allowance: ByteAllowance) -> None:
        """Read in slices, and notice data that arrives meanwhile."""
        self._has_more = False
        parts = -(-len(self._readable) // SLICE_ELEMENTS)
        for readable in slices(self._readable):
            if self._bytes_min:
                self._wait_for(readable, max(self._bytes_min // parts, 1))
            uncached = self._read(readable, allowance)
            if uncached:
                await self._read_disk(uncached)
            await yield_to_loop()

    def _read_cached(self, target: FetchTarget) -> Sequence[Buffer] | None:
        assert target.partition is not None
        try:
            batches = self._node.broker.read_stored(
                target.partition,
                target.request.offset,
                target.end(is_committed=self._is_committed),
                bytes_max=target.bytes_max,
            )
        except GatewayError as error:
            self._fail(target, as_value(error))
            return ()
        return batches and self._unexpired(target.partition, batches)

    def _unexpired(self, partition: Partition, batches: Sequence[Buffer]) -> Sequence[Buffer]:
        if partition.topic.settings.expires:
            return without_expired(batches, self._node.clock)
        return batches

    async def _read_disk(self, uncached: list[FetchTarget]) -> None:
        broker = self._node.broker
        for target in uncached:
            assert target.partition is not None
            try:
                batches = await broker.read_stored_disk(
                    target.partition,
                    target.request.offset,
                    target.end(is_committed=self._is_committed),
                    bytes_max=target.bytes_max,
                )
                target.batches = self._unexpired(target.partition, batches)
                if self._is_committed:
                    target.find_aborted()
            except GatewayError as error:
                self._fail(target, as_value(error))
            self._take(sum(map(len, target.batches)) - target.bytes_max)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if task.cancelled():
            return
        task.result()
        if not self._is_over:  # else the task encoded the response
            self._answer_or_wait()

    def _fail(self, target: FetchTarget, error: GatewayError) -> None:
        target.error = error
        self._has_failed = True

    # --- the budget

    def _take(self, size_bytes: int) -> None:
        self._taken_bytes += size_bytes
        if size_bytes >= 0:
            self._budget.take(size_bytes)
        else:
            self._budget.give_back(-size_bytes)

    def _wait_for_room(self) -> None:
        """Read again when the budget has room; respond after ``ROOM_WAIT_S_MAX`` in any case."""
        self._leave()
        self._budget.wait(self._on_room)
        self._set_timer(
            max(self._deadline_s, self._loop.time()) + ROOM_WAIT_S_MAX, self._answer
        )

    def _drop(self) -> None:
        """Release the batches; they are read again with the next attempt."""
        for target in self._readable:
            target.batches = ()
        self._take(-self._taken_bytes)

    # --- waiting

    def _answer_or_wait(self) -> None:
        if (
            self._has_failed
            or not self._is_waitable()
            or self._taken_bytes >= self._bytes_min
            or self._loop.time() >= self._deadline_s
        ):
            self._answer()
            return
        missing_bytes = self._bytes_min - self._taken_bytes
        self._drop()
        if self._has_more:
            self._leave()
            self.attempt()
            return
        self._set_timer(self._deadline_s, self._on_deadline)
        if not self._waiters:
            self._wait_for(self._readable, missing_bytes)

    def _is_waitable(self) -> bool:
        """Return whether batches may come to any partition."""
        return bool(self._readable)

    def _wait_for(self, readable: Sequence[FetchTarget], bytes_min: int) -> None:
        self._waiters.append(
            self._node.broker.wait_readable(
                [target.partition for target in readable if target.partition is not None],
                bytes_min=bytes_min,
                on_ready=self._on_room,
                reads_uncommitted=not self._is_committed,
            )
        )

    def _set_timer(self, at_s: float, work: Callable[[], None]) -> None:
        self._timer = self._loop.call_at(at_s, self._reply.guard, work)

    def _retry(self) -> None:
        if self._task is not None:
            self._has_more = True
        elif not self._is_over:
            self._leave()
            self.attempt()

    def _on_deadline(self) -> None:
        """Respond with the available batches: the client's wait is over."""
        self._bytes_min = 0
        if self._task is None:
            self._leave()
            self.attempt()

    def _on_room(self) -> None:
        """Read again. A method and no stored closure, whose cycle would keep the batches alive."""
        self._reply.guard(self._retry)

    def _hurry(self) -> None:
        """Respond now, without batches if there is no room: the node drains."""
        self._on_deadline()
        if self._task is None and not self._is_over:
            self._answer()

    def _cancel(self) -> None:
        self._reply.cancel = None
        self._leave()
        if self._task is not None:
            self._task.cancel()
        self._drop()

    def _leave(self) -> None:
        self._budget.leave(self._on_room)
        for waiter in self._waiters:
            waiter.cancel()
        self._waiters.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _answer(self) -> None:
        if self._is_throttled():
            self.refuse(ErrorCode.NONE)
            return
        self._leave()
        self._reply.hurry = None
        remove_unauthorized(self._session, self._topics, since=self._revision)
        if (tracer := self._node.broker.append_queue.tracer) is not None:
            trace_received(tracer, self._topics)
        if self._element_count > SLICE_ELEMENTS:
            self._start(self._answer_large())
        else:
            nodes = other_brokers(self._session)
            self._send(encode_answer(self._version, self._topics, nodes=nodes))

    def _is_throttled(self) -> bool:
        """Charge the client's quotas; return whether it gets an empty response, as in Kafka."""
        meter = self._reply.meter
        return meter is not None and meter.throttles_fetch(self._taken_bytes)

    def refuse(self, code: ErrorCode, *, session_id: int = 0) -> None:
        """Respond without partitions now."""
        if self._is_over:
            return
        reply = self._reply
        self._cancel()
        reply.hurry = None
        reply(encode_fetch_response(self._version, [], error_code=code, session_id=session_id))

    async def _answer_large(self) -> None:
        large_request_thread = self._node.large_request_thread
        nodes = other_brokers(self._session)
        self._send(
            await large_request_thread.run(encode_answer, self._version, self._topics, 0, nodes)
        )

    def _send(self, pieces: list[Buffer]) -> None:
        reply = self._reply
        reply.cancel = None
        reply.fetched_bytes, self._taken_bytes = self._taken_bytes, 0
        reply(pieces)
