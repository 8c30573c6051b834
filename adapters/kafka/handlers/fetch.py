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
v17  replica directory id (KIP-853), v18 high watermark of the follower; neither is looked at

Whole batches are answered, the first even when it begins before the offset asked for or is
above the byte limits (KIP-74). In topics with ``expiry.enable`` they come without what has
expired. ``min_bytes`` and ``max_wait_ms`` cost one waiter per fetch, not a
poll. As in Apache Kafka, a topic that is unknown or forbidden does not cut the wait for the
others short, while an error met at reading does.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

from adapters.kafka.access import topic_for
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
from gateway.auth.ports import Operation
from gateway.errors import GatewayError, TopicNotFound
from gateway.model import Octets
from gateway.partition import Partition
from gateway.records.expired import without_expired
from gateway.waiting import Waiter

API_KEY: Final = 1
VERSIONS: Final = range(4, 19)
ROOM_WAIT_S_MAX: Final = 5.0  # beyond the client's wait; its own request timeout is longer

decode = decode_fetch_request


class FetchReply(Protocol):
    """What the server hands in: call it with the pieces of the answer.

    ``hurry`` and ``cancel`` are set here, for a node that drains and a client that has gone;
    ``fetched_bytes`` is what the answer has taken of the fetch budget, from then on the
    server's to give back. ``guard`` runs what comes from elsewhere than the client's request.
    """

    hurry: Callable[[], None] | None
    cancel: Callable[[], None] | None
    fetched_bytes: int

    def __call__(self, body: list[Octets]) -> None:
        """Send the answer; once."""

    def guard(self, work: Callable[..., None], *args: Any) -> None:  # noqa: ANN401 - passed on
        """Run ``work``."""


def handle(request: FetchRequest, session: Session, version: int, reply: FetchReply) -> None:
    """Answer with what there is, or wait for more, within the client's limits."""
    if request.session_id:  # we gave none out
        code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        reply(encode_fetch_response(version, [], error_code=code))
        return
    _Fetch(request, session, version, reply).attempt()


class _Wanted:
    """One partition of a fetch: where it reads, or why it cannot."""

    __slots__ = ("batches", "bytes_max", "error", "partition", "want")

    def __init__(
        self, want: FetchedPartition, partition: Partition | None, error: GatewayError | None
    ) -> None:
        self.want = want
        self.partition = partition
        self.error = error
        self.batches: Sequence[Octets] = ()
        self.bytes_max = 0


class _Fetch:
    """A fetch under way: attempts until it has enough, its time is over, or there is an error."""

    __slots__ = (
        "_budget", "_bytes_max", "_bytes_min", "_deadline_s", "_has_failed", "_loop", "_node",
        "_readable", "_reply", "_session", "_taken_bytes", "_task", "_timer",
        "_topics", "_version", "_waiter",
    )  # fmt: skip

    def __init__(
        self, request: FetchRequest, session: Session, version: int, reply: FetchReply
    ) -> None:
        node = session.node
        self._node = node
        self._budget = node.fetch_budget
        self._session = session
        self._version = version
        self._reply = reply
        self._loop = asyncio.get_running_loop()
        wait_ms = min(max(request.max_wait_ms, 0), node.config.fetch_wait_ms_max)
        self._deadline_s = self._loop.time() + wait_ms / 1000
        self._bytes_max = min(request.bytes_max, node.config.fetch_bytes_max)
        self._bytes_min = min(request.bytes_min, self._bytes_max) if wait_ms else 0
        self._has_failed = False
        self._taken_bytes = 0
        self._waiter: Waiter | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._topics = [
            (ref, self._resolve(ref, partitions)) for ref, partitions in request.topics
        ]
        self._readable = [w for _, ws in self._topics for w in ws if w.partition is not None]
        reply.hurry = self._hurry
        reply.cancel = self._cancel

    def _resolve(self, ref: TopicRef, partitions: list[FetchedPartition]) -> list[_Wanted]:
        try:
            topic = topic_for(self._session, ref, Operation.READ)
            if topic.is_internal:
                msg = f"{topic.name.name} is the gateway's own"
                raise TopicNotFound(msg)
        except GatewayError as error:
            return [_Wanted(want, None, error) for want in partitions]
        wanted = []
        for want in partitions:
            partition = None
            try:
                partition = self._node.broker.partition(topic, want.number)
                check_current(partition, want.leader_epoch)
            except GatewayError as error:
                self._has_failed = self._has_failed or partition is not None
                wanted.append(_Wanted(want, partition, error))
            else:
                wanted.append(_Wanted(want, partition, None))
        return wanted

    # --- reading

    def attempt(self) -> None:
        """Read what there is; answer, or wait for what is missing."""
        if self._budget.free_bytes <= 0:
            self._wait_for_room()
            return
        cold = self._read()
        if cold:
            self._task = self._loop.create_task(self._read_disk(cold))
            self._task.add_done_callback(partial(self._reply.guard, self._on_disk_read))
        else:
            self._answer_or_wait()

    def _read(self) -> list[_Wanted]:
        """Read from memory and the page cache; return those that need the disk.

        No answer takes more than half of the room there is, so that few who are slow to take
        theirs leave some for many, nor more than producers bear beside it. What is read, or will
        be, counts from here on.
        """
        bytes_max = self._bytes_max
        if self._bytes_min <= 1:  # who waits for more must be able to get it
            bytes_max = self._node.fetch_pacing.bytes_max(bytes_max)
        free_bytes = min(bytes_max, max(self._budget.free_bytes // 2, 1))
        is_first = True
        cold = []
        for wanted in self._readable:
            wanted.batches = ()
            if wanted.error is not None or (free_bytes <= 0 and not is_first):
                continue
            wanted.bytes_max = max(min(wanted.want.bytes_max, free_bytes), 1)
            batches = self._read_cached(wanted)
            if batches is None:
                cold.append(wanted)
                size_bytes = wanted.bytes_max
            else:
                size_bytes = sum(map(len, batches))
                if not size_bytes:
                    continue
                if size_bytes > free_bytes and not is_first:
                    break  # only the first may be above the limits
                wanted.batches = batches
            free_bytes -= size_bytes
            is_first = False
            self._take(size_bytes)
        return cold

    def _read_cached(self, wanted: _Wanted) -> Sequence[Octets] | None:
        assert wanted.partition is not None
        try:
            batches = self._node.broker.read(
                wanted.partition, wanted.want.offset, bytes_max=wanted.bytes_max
            )
        except GatewayError as error:
            self._fail(wanted, error)
            return ()
        return batches and self._unexpired(wanted.partition, batches)

    def _unexpired(self, partition: Partition, batches: Sequence[Octets]) -> Sequence[Octets]:
        if partition.topic.settings.expires:
            return without_expired(batches, self._node.clock)
        return batches

    async def _read_disk(self, cold: list[_Wanted]) -> None:
        broker = self._node.broker
        for wanted in cold:
            assert wanted.partition is not None
            try:
                batches = await broker.read_disk(
                    wanted.partition, wanted.want.offset, bytes_max=wanted.bytes_max
                )
                wanted.batches = self._unexpired(wanted.partition, batches)
            except GatewayError as error:
                self._fail(wanted, error)
            self._take(sum(map(len, wanted.batches)) - wanted.bytes_max)

    def _on_disk_read(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if task.cancelled():
            return
        task.result()
        self._answer_or_wait()

    def _fail(self, wanted: _Wanted, error: GatewayError) -> None:
        wanted.error = error
        self._has_failed = True

    # --- the budget

    def _take(self, size_bytes: int) -> None:
        self._taken_bytes += size_bytes
        if size_bytes >= 0:
            self._budget.take(size_bytes)
        else:
            self._budget.give_back(-size_bytes)

    def _wait_for_room(self) -> None:
        """Try again when others have taken their answers; without end nobody waits."""
        self._leave()
        self._budget.wait(self._on_room)
        self._set_timer(
            max(self._deadline_s, self._loop.time()) + ROOM_WAIT_S_MAX, self._answer
        )

    def _drop(self) -> None:
        """Let go of what was read; it is read again when there is more."""
        for wanted in self._readable:
            wanted.batches = ()
        self._take(-self._taken_bytes)

    # --- waiting

    def _answer_or_wait(self) -> None:
        size_bytes = sum(len(batch) for wanted in self._readable for batch in wanted.batches)
        if (
            self._has_failed
            or not self._readable
            or size_bytes >= self._bytes_min
            or self._loop.time() >= self._deadline_s
        ):
            self._answer()
            return
        self._leave()
        self._set_timer(self._deadline_s, self._on_deadline)
        self._waiter = self._node.broker.wait_readable(
            [wanted.partition for wanted in self._readable if wanted.partition is not None],
            bytes_min=self._bytes_min - size_bytes,
            on_ready=self._on_room,
        )
        self._drop()

    def _set_timer(self, at_s: float, work: Callable[[], None]) -> None:
        self._timer = self._loop.call_at(at_s, self._reply.guard, work)

    def _retry(self) -> None:
        if self._reply.cancel is not None:
            self.attempt()

    def _on_deadline(self) -> None:
        """The client's wait is over: answer with what there is now."""
        self._bytes_min = 0
        if self._task is None:
            self._leave()
            self.attempt()

    def _on_room(self) -> None:
        """Try again. A method, not a stored closure: a cycle would keep the answer's octets."""
        self._reply.guard(self._retry)

    def _hurry(self) -> None:
        """The node drains: answer now, and where there is no room, with nothing."""
        self._on_deadline()
        if self._task is None and self._reply.cancel is not None:
            self._answer()

    def _cancel(self) -> None:
        self._reply.cancel = None
        self._leave()
        if self._task is not None:
            self._task.cancel()
        self._drop()

    def _leave(self) -> None:
        self._budget.leave(self._on_room)
        if self._waiter is not None:
            self._waiter.cancel()
            self._waiter = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _answer(self) -> None:
        self._leave()
        reply = self._reply
        reply.cancel = reply.hurry = None
        reply.fetched_bytes, self._taken_bytes = self._taken_bytes, 0
        topics = [(ref, [_result(w) for w in wanted]) for ref, wanted in self._topics]
        reply(encode_fetch_response(self._version, topics))


def _result(wanted: _Wanted) -> FetchResult:
    partition = wanted.partition
    code = ErrorCode.NONE if wanted.error is None else code_of(wanted.error)
    if partition is None:
        return FetchResult(wanted.want.number, code, -1, -1, ())
    return FetchResult(
        wanted.want.number,
        code,
        partition.high_watermark,
        partition.log_start_offset,
        wanted.batches,
    )
