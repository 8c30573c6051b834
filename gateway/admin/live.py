"""REST for charts: ``GET /v1/live`` returns samples of rates, backlog and memory.

Samples are taken every two seconds, for all viewers together, and only while somebody asks:
``WATCHED_MS_MAX`` after the last request the samples are dropped, and nothing is measured.
"""

import asyncio
import resource
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gateway.admin.state import AdminState
from gateway.errors import InvalidRequest
from gateway.kernel import Kernel
from gateway.metrics import Metrics

EVERY_MS: Final = 2_000
SAMPLES_MAX: Final = 450  # 15 minutes
WATCHED_MS_MAX: Final = 15_000
POSITIONS_MAX: Final = 20_000
"""Committed offsets of all groups above which no total lag is computed."""
QUEUES_MAX: Final = 2_000
"""Queues above which their messages are not counted in samples."""
_PAGE_BYTES: Final = resource.getpagesize()

Sample = dict[str, Any]


class LiveSamples:
    """Samples of a node while somebody looks. Loop only."""

    def __init__(self, state: AdminState) -> None:
        self._state = state
        self._samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)
        self._asked_ms = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_running(self) -> bool:
        """Whether samples are being taken."""
        return self._timer is not None

    def since(self, at_unix_ms: int) -> list[Sample]:
        """Return the samples after a time, and go on sampling for a while."""
        kernel = self._state.running()
        self._asked_ms = kernel.clock.monotonic_ms()
        if self._timer is None:
            self._tick()
        return [one for one in self._samples if one["at_unix_ms"] > at_unix_ms]

    def _tick(self) -> None:
        kernel = self._state.kernel
        watched_ms = 0 if kernel is None else kernel.clock.monotonic_ms() - self._asked_ms
        if kernel is None or watched_ms > WATCHED_MS_MAX:
            self._timer = None
            self._samples.clear()
            return
        self._samples.append(_sample(kernel, self._state.metrics))
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(EVERY_MS / 1_000, self._tick)


def routes(state: AdminState) -> list[Route]:
    """Return ``GET live``; ``?since=`` is the time of the last sample that is known."""
    samples = LiveSamples(state)

    async def live(request: Request) -> Response:
        since = request.query_params.get("since", "0")
        if not (since.isascii() and since.isdigit()):
            raise InvalidRequest("since: a time in unix ms")
        return JSONResponse({"every_ms": EVERY_MS, "samples": samples.since(int(since))})

    return [Route("/live", live)]


def _sample(kernel: Kernel, metrics: Metrics) -> Sample:
    """Return a sample: totals since the start, from which rates are computed, and gauges."""

    def total(name: str) -> float:
        return sum(value for _, value in metrics.read(name))

    def by_label(name: str) -> dict[str, float]:
        return {labels[0]: value for labels, value in metrics.read(name)}

    queued = len(kernel.queues.of_clients()) <= QUEUES_MAX
    return {
        "at_unix_ms": kernel.clock.unix_ms(),
        "records_in": total("headgate_appended_records"),
        "bytes_in": total("headgate_appended_bytes"),
        "bytes_out": total("headgate_read_bytes"),
        "lag": group_lag(kernel),
        "queues": by_label("headgate_queue_messages") if queued else None,
        "connections": by_label("headgate_connections"),
        "rss_bytes": resident_bytes(),
        "loop_lag_ms": total("headgate_loop_lag_seconds") * 1_000,
        "undurable_bytes": kernel.broker.undurable_bytes,
    }


def group_lag(kernel: Kernel) -> int | None:
    """Return the messages that all groups have not read; None where that is much to compute."""
    if kernel.cursors.count > POSITIONS_MAX:
        return None
    return sum(lag for _, lag in lags(kernel))


def lags(kernel: Kernel) -> Iterator[tuple[str, int]]:
    """Yield each group's name and its lag on this node's partitions."""
    for group in kernel.groups.names():
        lag = 0
        for cursor in kernel.cursors.fetch_all(group):
            topic = kernel.topics.by_uuid(cursor.topic_uuid)
            if topic is None or cursor.number >= len(topic.partition_ids):
                continue
            end = kernel.broker.stored_bounds(topic.partition_ids[cursor.number]).end
            lag += max(0, end - cursor.offset)
        yield group.name, lag


def resident_bytes() -> int | None:
    """Return the process's resident memory, None where the system does not say."""
    try:
        text = Path("/proc/self/statm").read_text("ascii")
        return int(text.split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return None
