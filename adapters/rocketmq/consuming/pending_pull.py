"""Pull of messages: reads, filters, waits for messages, and answers within its limits."""

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from adapters.rocketmq.decoded_runs import DecodedRun, decode_run
from adapters.rocketmq.remoting.wire import ResponseCode
from adapters.rocketmq.request import Request
from adapters.rocketmq.subscriptions import Matches
from gateway.errors import GatewayError, as_value
from gateway.long_poll import Waiter
from gateway.model import Buffer, parse_batch_header
from gateway.partition import Partition
from gateway.records.decoding_cost import is_large
from gateway.records.expired import without_expired

READ_BYTES: Final = 256 * 1024
"""Bytes of one read of the log, unless a single batch is larger."""
EXAMINED_MAX: Final = 256
"""Messages that a filter looks at in one turn of the loop."""
SCAN_S_MAX: Final = 1.0
"""Seconds beyond its wait in which a pull looks for a message that its filter selects."""
_SUGGESTED: Final = {"suggestWhichBrokerId": "0", "topicSysFlag": "0", "groupSysFlag": "0"}


class PullLimits(NamedTuple):
    """Limits of one pull; ``wait_ms`` is 0 for one that does not wait."""

    messages_max: int
    bytes_max: int
    wait_ms: int


class PendingPull:
    """Pull that reads until it has a message that its filter selects, or its time is over."""

    __slots__ = (
        "_asked_offset", "_deadline_s", "_limits", "_loop", "_matches", "_node", "_offset",
        "_partition", "_placed", "_request", "_timer", "_waiter",
    )  # fmt: skip

    def __init__(
        self,
        request: Request,
        partition: Partition,
        offset: int,
        limits: PullLimits,
        matches: Matches | None,
    ) -> None:
        self._request = request
        self._node = request.node
        self._partition = partition
        self._asked_offset = self._offset = offset
        self._limits = limits
        self._matches = matches
        self._placed = request.node.placed(request.client, partition)
        self._loop = asyncio.get_running_loop()
        self._deadline_s = self._loop.time() + limits.wait_ms / 1_000
        self._timer: asyncio.TimerHandle | None = None
        self._waiter: Waiter | None = None
        request.cancel = self._leave

    def attempt(self) -> None:
        """Read what there is; answer, or wait for more. A ``GatewayError`` is the answer."""
        if self._request.is_done:
            return
        self._leave()
        try:
            self._read()
        except GatewayError as error:
            self._request.fail(as_value(error))

    def _read(self) -> None:
        partition = self._partition
        partition.check_present()
        if not partition.log_start_offset <= self._offset <= partition.stable_end:
            self._answer_moved()
            return
        if self._offset == partition.stable_end:
            self._answer_or_wait()
            return
        if self._node.pull_budget.free_bytes <= 0:
            self._wait_for_room()
            return
        run = self._node.decoded.find(partition.partition_id, self._offset)
        if run is not None:
            self._take(run)
            return
        batches = self._node.kernel.broker.read(partition, self._offset, bytes_max=READ_BYTES)
        if batches is None or any(is_large(parse_batch_header(batch)) for batch in batches):
            self._request.start(self._read_slowly(batches))
        elif batches:
            self._take(self._decoded(batches))
        else:
            self._answer_or_wait()

    async def _read_slowly(self, batches: Sequence[Buffer] | None) -> None:
        """Read from the disk, and decode large batches in a thread."""
        partition, offset = self._partition, self._offset
        if batches is None:
            broker = self._node.kernel.broker
            batches = await broker.read_disk(partition, offset, bytes_max=READ_BYTES)
        if not batches:
            self._answer_or_wait()
            return
        batches = self._unexpired(batches)
        run = await self._loop.run_in_executor(None, decode_run, batches, offset)
        self._keep(run)
        self._take(run)

    def _decoded(self, batches: Sequence[Buffer]) -> DecodedRun:
        run = decode_run(self._unexpired(batches), self._offset)
        self._keep(run)
        return run

    def _unexpired(self, batches: Sequence[Buffer]) -> Sequence[Buffer]:
        if self._partition.topic.settings.expires:
            return without_expired(batches, self._node.kernel.clock)
        return batches

    def _keep(self, run: DecodedRun) -> None:
        if not self._partition.topic.settings.expires:
            self._node.decoded.add(self._partition.partition_id, run)

    def _take(self, run: DecodedRun) -> None:
        """Answer with the messages of a run that are selected; without any, go on after it."""
        found: list[bytes] = []
        room_bytes = self._limits.bytes_max
        examined = 0
        index = run.index_of(self._offset)
        while index < len(run.records) and len(found) < self._limits.messages_max:
            examined += 1
            if self._matches is not None and examined > EXAMINED_MAX:
                break
            data, properties = run.shown(index, self._placed)
            if self._matches is None or self._matches(properties):
                if found and len(data) > room_bytes:
                    break
                found.append(data)
                room_bytes -= len(data)
            index += 1
        is_whole = index == len(run.records)
        self._offset = run.end if is_whole else run.records[index].offset
        if found:
            self._answer_found(found)
        elif self._loop.time() >= self._deadline_s + SCAN_S_MAX:
            self._answer_none()  # the client goes on from the offset that was reached
        else:  # in a later turn, so that others have theirs
            self._request.hurry = self._answer_none
            self._loop.call_soon(self._request.client.guard, self.attempt)

    # --- waiting

    def _answer_or_wait(self) -> None:
        remaining_s = self._deadline_s - self._loop.time()
        if remaining_s <= 0:
            self._answer_none()
            return
        self._request.hurry = self._answer_none
        self._timer = self._loop.call_later(
            remaining_s, self._request.client.guard, self._answer_none
        )
        self._waiter = self._node.kernel.broker.wait_readable(
            [self._partition], bytes_min=1, on_ready=self._on_ready
        )

    def _on_ready(self) -> None:
        self._request.client.guard(self.attempt)

    def _wait_for_room(self) -> None:
        """Read again when the messages of other pulls have been sent."""
        self._node.pull_budget.wait(self._on_ready)
        self._request.hurry = self._answer_none
        self._timer = self._loop.call_later(
            max(self._deadline_s - self._loop.time(), 1.0),
            self._request.client.guard,
            self._answer_none,
        )

    def _leave(self) -> None:
        self._node.pull_budget.leave(self._on_ready)
        if self._waiter is not None:
            self._waiter.cancel()
            self._waiter = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- answering

    def _answer_found(self, found: Sequence[bytes]) -> None:
        body = b"".join(found)
        self._node.pull_budget.take(len(body))
        self._request.pulled_bytes = len(body)
        self._answer(ResponseCode.SUCCESS, "FOUND", body)

    def _answer_none(self) -> None:
        if self._offset != self._asked_offset:
            self._answer(ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
        else:
            self._answer(ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE")

    def _answer_moved(self) -> None:
        """Answer with the nearest offset that there is."""
        partition, offset = self._partition, self._offset
        if offset < partition.log_start_offset:
            self._offset, remark = partition.log_start_offset, "OFFSET_TOO_SMALL"
        else:
            self._offset, remark = partition.stable_end, "OFFSET_OVERFLOW_BADLY"
        self._answer(ResponseCode.PULL_OFFSET_MOVED, remark)

    def _answer(self, code: ResponseCode, remark: str, body: bytes = b"") -> None:
        self._leave()
        fields = {
            **_SUGGESTED,
            "nextBeginOffset": str(self._offset),
            "minOffset": str(self._partition.log_start_offset),
            "maxOffset": str(self._partition.stable_end),
        }
        self._request.reply(fields, body, code=code, remark=remark)
