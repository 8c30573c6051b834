"""Fetch: API key 1, versions 4 to 18.

v4   isolation level (KIP-98); without transactions both levels read up to the high watermark
v5   log_start_offset (KIP-107)
v7   fetch sessions (KIP-227): answered with session 0, so that every fetch is a full one
v9   current_leader_epoch (KIP-320)
v10  zstd (KIP-110)
v11  rack id (KIP-392); there is one replica, no preferred one
v12  flexible encoding, last_fetched_epoch (KIP-595)
v13  topic ids (KIP-516)
v15  ReplicaState instead of replica_id (KIP-903); only consumers fetch here
v16  node_endpoints (KIP-951)
v17  replica directory id (KIP-853), v18 high watermark of the follower; both not looked at

Whole batches are answered, the first even when it begins before the offset asked for or is above
the byte limits (KIP-74). ``min_bytes`` and ``max_wait_ms`` cost one waiter per fetch, not a poll.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from adapters.kafka.codec import TopicRef
from adapters.kafka.errors import ErrorCode, code_of
from adapters.kafka.fetch_codec import (
    FetchedPartition,
    FetchRequest,
    FetchResult,
    decode_fetch_request,
    encode_fetch_response,
)
from adapters.kafka.leader_epochs import check_current
from adapters.kafka.session import Session
from adapters.kafka.topic_refs import resolve_topic
from gateway.auth import Operation, ResourceType
from gateway.errors import (
    GatewayError,
    TopicNotFound,
    Unauthorized,
)
from gateway.model import Octets
from gateway.partition import Partition
from gateway.waiting import Waiter

API_KEY: Final = 1
VERSIONS: Final = range(4, 19)

decode = decode_fetch_request


class FetchReply:
    """What the server hands in: call it with the pieces; ``hurry`` and ``cancel`` are set here."""

    hurry: Callable[[], None] | None
    cancel: Callable[[], None] | None

    def __call__(self, pieces: list[Octets]) -> None:
        """Send the answer."""


def handle(request: FetchRequest, session: Session, version: int, reply: FetchReply) -> None:
    """Answer with what there is, or wait for more, within the client's limits."""
    if request.session_id:  # we gave none out
        code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        reply(encode_fetch_response(version, [], error_code=code))
        return
    _Fetch(request, session, version, reply).attempt()


class _Wanted:
    """One partition of a fetch: where it reads, or why it cannot."""

    __slots__ = ("batches", "error", "partition", "want")

    def __init__(
        self, want: FetchedPartition, partition: Partition | None, error: GatewayError | None
    ) -> None:
        self.want = want
        self.partition = partition
        self.error = error
        self.batches: Sequence[Octets] | None = ()


class _Fetch:
    """A fetch under way: attempts until it has enough, its time is over, or there is an error."""

    __slots__ = (
        "_bytes_max", "_bytes_min", "_deadline_s", "_loop", "_node", "_reply", "_session",
        "_task", "_timer", "_topics", "_version", "_waiter",
    )  # fmt: skip

    def __init__(
        self, request: FetchRequest, session: Session, version: int, reply: FetchReply
    ) -> None:
        node = session.node
        self._node = node
        self._session = session
        self._version = version
        self._reply = reply
        self._loop = asyncio.get_running_loop()
        wait_ms = min(max(request.max_wait_ms, 0), node.config.fetch_wait_ms_max)
        self._deadline_s = self._loop.time() + wait_ms / 1000
        self._bytes_min = request.bytes_min if wait_ms else 0
        self._bytes_max = min(request.bytes_max, node.config.fetch_bytes_max)
        self._waiter: Waiter | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._topics = [
            (ref, self._resolve(ref, partitions)) for ref, partitions in request.topics
        ]
        reply.hurry = self._hurry
        reply.cancel = self._cancel

    def _resolve(self, ref: TopicRef, partitions: list[FetchedPartition]) -> list[_Wanted]:
        try:
            topic = resolve_topic(self._session, ref)
            if not self._session.allows(Operation.READ, ResourceType.TOPIC, topic.name.name):
                msg = f"no right to read {topic.name.name}"
                raise Unauthorized(msg)
            if topic.is_internal:
                msg = f"{topic.name.name} is the gateway's own"
                raise TopicNotFound(msg)
        except GatewayError as error:
            return [_Wanted(want, None, error) for want in partitions]
        wanted = []
        for want in partitions:
            try:
                partition = self._node.broker.partition(topic, want.index)
                check_current(partition, want.leader_epoch)
            except GatewayError as error:
                wanted.append(_Wanted(want, None, error))
            else:
                wanted.append(_Wanted(want, partition, None))
        return wanted

    def attempt(self) -> None:
        """Read what there is; answer, or wait for what is missing."""
        budget = self._node.fetch_budget
        if budget.free_bytes <= 0:
            budget.wait(self._retry)
            return
        cold = self._read()
        if cold:
            self._task = self._loop.create_task(self._read_disk(cold))
            self._task.add_done_callback(self._on_disk_read)
        else:
            self._answer_or_wait()

    def _read(self) -> list[_Wanted]:
        """Read from memory and the page cache; return those that need the disk."""
        broker = self._node.broker
        free_bytes = min(self._bytes_max, self._node.fetch_budget.free_bytes)
        is_first = True
        cold = []
        for _, partitions in self._topics:
            for wanted in partitions:
                partition = wanted.partition
                wanted.batches = ()
                if partition is None or wanted.error or (free_bytes <= 0 and not is_first):
                    continue
                bytes_max = min(wanted.want.bytes_max, max(free_bytes, 1))
                try:
                    batches = broker.read(partition, wanted.want.offset, bytes_max=bytes_max)
                except GatewayError as error:
                    wanted.error = error
                    continue
                if batches is None:
                    cold.append(wanted)
                    free_bytes -= bytes_max
                    is_first = False
                elif batches:
                    wanted.batches = batches
                    free_bytes -= sum(map(len, batches))
                    is_first = False
        return cold

    async def _read_disk(self, cold: list[_Wanted]) -> None:
        broker = self._node.broker
        for wanted in cold:
            assert wanted.partition is not None
            try:
                wanted.batches = await broker.read_disk(
                    wanted.partition, wanted.want.offset, bytes_max=wanted.want.bytes_max
                )
            except GatewayError as error:
                wanted.batches = ()
                wanted.error = error

    def _on_disk_read(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if task.cancelled():
            return
        task.result()
        self._answer_or_wait()

    def _answer_or_wait(self) -> None:
        size_bytes = 0
        for _, partitions in self._topics:
            for wanted in partitions:
                if wanted.error is not None:
                    self._answer()
                    return
                size_bytes += sum(map(len, wanted.batches or ()))
        if size_bytes >= self._bytes_min or self._loop.time() >= self._deadline_s:
            self._answer()
            return
        if self._timer is None:
            self._timer = self._loop.call_at(self._deadline_s, self._hurry)
        self._waiter = self._node.broker.wait_readable(
            [w.partition for _, ws in self._topics for w in ws if w.partition is not None],
            bytes_min=self._bytes_min - size_bytes,
            on_ready=self._retry,
        )

    def _retry(self) -> None:
        if self._reply.cancel is not None:
            self.attempt()

    def _hurry(self) -> None:
        """Answer with what there is now."""
        self._bytes_min = 0
        if self._task is None:
            self._leave()
            self.attempt()

    def _cancel(self) -> None:
        self._leave()
        if self._task is not None:
            self._task.cancel()
        self._reply.cancel = None

    def _leave(self) -> None:
        if self._waiter is not None:
            self._waiter.cancel()
            self._waiter = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _answer(self) -> None:
        self._leave()
        self._reply.cancel = self._reply.hurry = None
        self._reply(
            encode_fetch_response(
                self._version,
                [(ref, [_result(w) for w in partitions]) for ref, partitions in self._topics],
            )
        )


def _result(wanted: _Wanted) -> FetchResult:
    partition = wanted.partition
    code = ErrorCode.NONE if wanted.error is None else code_of(wanted.error)
    if partition is None:
        return FetchResult(wanted.want.index, code, -1, -1, ())
    return FetchResult(
        wanted.want.index,
        code,
        partition.high_watermark,
        partition.log_start_offset,
        wanted.batches or (),
    )
