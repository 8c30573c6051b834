"""A pending ShareFetch: acquires messages, waits for some, and responds with stored batches."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final
from uuid import UUID

from adapters.kafka.codecs.current_leader import current_leader
from adapters.kafka.codecs.share_fetch_codec import (
    RECORD_LIMIT,
    AcquiredRange,
    ShareFetchRequest,
    ShareFetchResult,
    encode_fetch_response,
)
from adapters.kafka.errors import code_of
from adapters.kafka.fetching.ports import FetchReply
from adapters.kafka.metadata.broker_addresses import other_brokers
from adapters.kafka.node.share_sessions import PartitionKey, ShareSession
from adapters.kafka.session import Session
from adapters.kafka.shares.acknowledgements import Acknowledgements, find_partition
from features.queue.model import TakenRange
from gateway.errors import (
    GatewayError,
    OffsetOutOfRange,
    TopicNotFound,
    as_value,
    public_text,
)
from gateway.model import Buffer, unpack_batch_header
from gateway.records.expired import without_expired
from gateway.shares.partition import SharePartition

TRIES_MAX: Final = 16
"""Reads of a partition in one turn, to find messages behind those that are dead letters."""
RECORDS_MAX: Final = 2_000
"""Records of a fetch that does not limit them."""


class PendingShareFetch:
    """A fetch that tries again until it has acquired something, or its time is over."""

    __slots__ = (
        "_acknowledgements", "_bytes_left", "_deadline_s", "_disk_reads", "_fetches",
        "_has_failed", "_is_acknowledged", "_is_exact", "_is_ready", "_is_waiting", "_loop",
        "_on_closed", "_records_left", "_reply", "_request", "_results", "_session",
        "_share_session", "_taken_bytes", "_task", "_timer",
    )  # fmt: skip

    def __init__(
        self,
        request: ShareFetchRequest,
        session: Session,
        reply: FetchReply,
        share_session: ShareSession,
        *,
        fetches: bool,
    ) -> None:
        """``fetches``: whether messages are wanted, beside the outcome of acknowledgements."""
        self._request, self._session, self._reply = request, session, reply
        self._share_session = share_session
        self._loop = asyncio.get_running_loop()
        wait_ms = min(max(request.max_wait_ms, 0), session.node.config.fetch_wait_ms_max)
        self._deadline_s = self._loop.time() + wait_ms / 1000
        self._fetches = fetches
        self._is_exact = request.acquire_mode == RECORD_LIMIT
        self._bytes_left = 0
        self._records_left = 0
        self._taken_bytes = 0
        self._disk_reads = 0
        self._has_failed = False
        self._is_acknowledged = False
        self._is_ready = False
        self._is_waiting = False
        self._results: dict[PartitionKey, ShareFetchResult] = {}
        self._acknowledgements: Acknowledgements | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._on_closed: Callable[[], None] | None = None
        reply.cancel = self._cancel

    def start(
        self, acknowledgements: Acknowledgements, on_closed: Callable[[], None] | None = None
    ) -> None:
        """Acquire, and respond once acknowledgements are durable; then call ``on_closed``."""
        self._on_closed = on_closed
        self._acknowledgements = acknowledgements
        acknowledgements.end(partial(self._reply.guard, self._acknowledged))
        if self._reply.cancel is None:
            return
        self._reply.hurry = self._hurry
        if self._fetches:
            self._attempt()
        else:
            self._finish()

    @property
    def _is_over(self) -> bool:
        """Whether the response is sent, or nobody waits for it any more."""
        return self._reply.cancel is None

    def _acknowledged(self) -> None:
        self._is_acknowledged = True
        if self._is_ready and not self._is_over:
            self._send()

    # --- acquiring

    def _attempt(self) -> None:
        """Acquire what is there; respond, or wait for more."""
        node = self._session.node
        budget = node.fetch_budget
        if self._share_session.is_ended:  # by a new one of the member, on another connection
            self._finish()
            return
        if budget.free_bytes <= 0:
            self._wait()
            budget.wait(self._on_ready)
            return
        bytes_max = min(self._request.bytes_max, node.config.fetch_bytes_max)
        if self._reply.meter is not None:
            bytes_max = self._reply.meter.fetch_bytes_max(bytes_max)
        self._bytes_left = min(bytes_max, max(budget.free_bytes // 2, 1))
        self._records_left = self._request.records_max or RECORDS_MAX
        uncached = [key for key in self._in_turn() if not self._acquire_cached(key)]
        if uncached and not self._taken_bytes:
            self._disk_reads += 1
            self._task = self._loop.create_task(self._acquire_from_disk(uncached))
            self._task.add_done_callback(partial(self._reply.guard, self._on_task_done))
        else:
            self._answer_or_wait()

    def _in_turn(self) -> list[PartitionKey]:
        """Return the session's partitions, another first each time."""
        share_session = self._share_session
        keys = list(share_session.partitions)
        if len(keys) > 1:
            found = share_session.partitions.pop(keys[0])
            share_session.partitions[keys[0]] = found
        revision = self._session.node.authorizer.revision
        if share_session.revision != revision:
            share_session.revision = revision
            share_session.partitions.update(dict.fromkeys(keys))
        return keys

    def _find(self, key: PartitionKey) -> SharePartition | None:
        """Return a partition; None with its error among the results."""
        found = self._share_session.partitions.get(key)
        if found is not None and found.lane.is_open:
            return found
        try:
            found = find_partition(self._session, self._share_session.key.group, *key)
        except GatewayError as error:
            self._fail(key, as_value(error))
            return None
        if key in self._share_session.partitions:
            self._share_session.partitions[key] = found
        return found

    def _fail(self, key: PartitionKey, error: GatewayError) -> None:
        self._results[key] = ShareFetchResult(
            key[1], code_of(error), public_text(error), leader=current_leader(error)
        )
        self._has_failed |= not isinstance(error, TopicNotFound)

    def _acquire_cached(self, key: PartitionKey) -> bool:
        """Acquire messages in memory; return whether that is all, without a read of the disk."""
        found = self._find(key)
        for _ in range(TRIES_MAX):
            if found is None or not self._has_room:
                return True
            start = found.next_offset()
            if start is None:
                return True
            try:
                batches = self._session.node.broker.read_stored(
                    found.partition,
                    start,
                    found.partition.stable_end,
                    bytes_max=max(self._bytes_left, 1),
                )
            except OffsetOutOfRange:
                found.skip_deleted()
                continue
            except GatewayError as error:
                self._fail(key, as_value(error))
                return True
            if batches is None:
                return False
            if not batches:
                found.drop_missing()
            elif self._take(key, found, start, batches):
                return True
        return True

    async def _acquire_from_disk(self, keys: Sequence[PartitionKey]) -> None:
        for key in keys:
            found = self._find(key)
            start = None if found is None or not self._has_room else found.next_offset()
            if found is None or start is None:
                continue
            try:
                batches = await self._session.node.broker.read_stored_disk(
                    found.partition,
                    start,
                    found.partition.stable_end,
                    bytes_max=max(self._bytes_left, 1),
                )
            except OffsetOutOfRange:
                found.skip_deleted()
            except GatewayError as error:
                self._fail(key, as_value(error))
            else:
                if batches and not self._is_over:
                    self._take(key, found, start, batches)

    @property
    def _has_room(self) -> bool:
        return self._records_left > 0 and (self._bytes_left > 0 or not self._taken_bytes)

    def _take(
        self,
        key: PartitionKey,
        found: SharePartition,
        start: int,
        batches: Sequence[Buffer],
    ) -> bool:
        """Acquire messages of batches that were read; return False when others go first."""
        headers = [unpack_batch_header(batch) for batch in batches]
        taken = found.acquire(
            start,
            [header.last_offset for header in headers],
            holder=self._share_session.holder,
            records_max=self._records_left,
            is_exact=self._is_exact,
        )
        if not taken:
            return False
        first, last = taken[0].offsets[0], taken[-1].offsets[-1]
        wanted = [
            batch
            for batch, header in zip(batches, headers, strict=True)
            if header.last_offset >= first and header.base_offset <= last
        ]
        if found.partition.topic.settings.expires:
            wanted = without_expired(wanted, self._session.node.clock)
        size_bytes = sum(map(len, wanted))
        self._bytes_left -= size_bytes
        self._records_left -= sum([len(one.offsets) for one in taken])
        self._taken_bytes += size_bytes
        self._session.node.fetch_budget.take(size_bytes)
        self._results[key] = ShareFetchResult(
            key[1], batches=wanted, acquired=acquired_ranges(taken)
        )
        return True

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled():
            task.result()
            if self._is_over:
                return
            # What was read may have gone to others, and messages of other partitions have come.
            if not self._taken_bytes and not self._has_failed and self._disk_reads < TRIES_MAX:
                self._attempt()
            else:
                self._answer_or_wait()

    # --- waiting

    def _answer_or_wait(self) -> None:
        has_some = any(result.acquired for result in self._results.values())
        if has_some or self._has_failed or self._loop.time() >= self._deadline_s:
            self._finish()
        else:
            self._wait()

    def _wait(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_at(
                self._deadline_s, self._reply.guard, self._on_deadline
            )
        if not self._is_waiting:
            self._is_waiting = True
            for found in self._share_session.partitions.values():
                if found is not None:
                    self._session.node.shares.wait(found, self._on_ready)

    def _leave(self) -> None:
        self._session.node.fetch_budget.leave(self._on_ready)
        if self._is_waiting:
            self._is_waiting = False
            for found in self._share_session.partitions.values():
                if found is not None:
                    self._session.node.shares.leave(found, self._on_ready)

    def _on_ready(self) -> None:
        """Try again: there may be messages, or room for them."""
        self._reply.guard(self._retry)

    def _retry(self) -> None:
        if not self._is_over and self._task is None and not self._is_ready:
            self._leave()
            self._attempt()

    def _on_deadline(self) -> None:
        self._timer = None
        if not self._is_over and self._task is None:
            self._finish()

    def _hurry(self) -> None:
        """Respond with what is there: the node drains."""
        self._deadline_s = 0
        self._on_deadline()

    # --- answering

    def _finish(self) -> None:
        self._leave()
        self._is_ready = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._is_acknowledged and not self._is_over:
            self._send()

    def _send(self) -> None:
        reply, meter = self._reply, self._reply.meter
        reply.cancel = reply.hurry = None
        if meter is not None:
            meter.charge_fetched(self._taken_bytes)
        topics: dict[UUID, list[ShareFetchResult]] = {}
        for (topic_id, _), result in self._merged().items():
            topics.setdefault(topic_id, []).append(result)
        node = self._session.node
        pieces = encode_fetch_response(
            list(topics.items()),
            lock_ms=node.shares.settings(self._share_session.key.group).queue.lease_ms,
            nodes=other_brokers(self._session),
        )
        reply.fetched_bytes, self._taken_bytes = self._taken_bytes, 0
        if self._on_closed is not None:
            self._on_closed()
        reply(pieces)

    def _merged(self) -> dict[PartitionKey, ShareFetchResult]:
        """Return the results, with the outcomes of acknowledgements."""
        results = self._results
        assert self._acknowledgements is not None
        for outcome in self._acknowledgements.outcomes:
            key = outcome.topic_id, outcome.number
            result = results.get(key, ShareFetchResult(outcome.number))
            results[key] = result._replace(
                acknowledge_code=outcome.code,
                acknowledge_message=outcome.message,
                leader=result.leader or outcome.leader,
            )
        return results

    def _cancel(self) -> None:
        """Give up: the connection is lost, and its session ends by itself."""
        self._reply.cancel = None
        self._leave()
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
        self._session.node.fetch_budget.give_back(self._taken_bytes)
        self._taken_bytes = 0


def acquired_ranges(taken: Sequence[TakenRange]) -> list[AcquiredRange]:
    """Return what was taken, contiguous messages that were delivered equally often as one."""
    ranges: list[AcquiredRange] = []
    for offsets, attempt, _, _ in taken:
        if ranges and ranges[-1].last_offset + 1 == offsets[0]:
            last = ranges[-1]
            if last.delivery_count == attempt:
                ranges[-1] = last._replace(last_offset=offsets[-1])
                continue
        ranges.append(AcquiredRange(offsets[0], offsets[-1], min(attempt, 0x7FFF)))
    return ranges
