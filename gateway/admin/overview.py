"""REST for the overview: ``GET /v1/overview`` returns warnings and the largest of each kind."""

import heapq
import shutil
from collections.abc import Iterator
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gateway.admin.live import POSITIONS_MAX, QUEUES_MAX, lags
from gateway.admin.state import AdminState
from gateway.config.advice import warnings
from gateway.kernel import HasListeners, Kernel
from gateway.queues.queue import Queue

SHOWN_MAX: Final = 8
PARTITIONS_MAX: Final = 20_000
"""Partitions of all topics above which the largest topics are not searched for."""
DISK_FREE_MIN: Final = 0.1
"""Share of a file system below which free space is worth a warning."""
EXPIRES_WITHIN_DAYS: Final = 30
"""Days before the end of a certificate from which on there is a warning."""
_DAY_MS: Final = 86_400_000


def routes(state: AdminState) -> list[Route]:
    """Return ``GET overview``."""

    async def overview(_: Request) -> Response:
        kernel = state.running()
        dead = _dead_letters(kernel)
        return JSONResponse(
            {
                "warnings": [*_warnings(kernel, dead), *_expiring(state, kernel)],
                "dead_letters": dead,
                "topics": _largest_topics(kernel),
                "groups": _furthest_behind(kernel),
                "queues": _longest_queues(kernel),
                "counts": {
                    "topics": len(kernel.topics.topics()),
                    "partitions": kernel.topics.partition_count,
                    "groups": len(kernel.groups.names()),
                    "queues": len(kernel.queues.of_clients()),
                    "delayed": kernel.delays.total,
                },
            }
        )

    return [Route("/overview", overview)]


def _warnings(kernel: Kernel, dead: list[dict[str, Any]]) -> Iterator[dict[str, str]]:
    for text in warnings(kernel.settings):
        yield {"text": text, "page": "config"}
    usage = shutil.disk_usage(kernel.settings.node.data_dir)
    if usage.free < usage.total * DISK_FREE_MIN:
        percent = usage.free * 100 // usage.total
        yield {"text": f"the disk of data_dir has {percent} % left", "page": ""}
    for one in dead:
        text = f"{one['count']} dead letters in {one['name']}"
        yield {"text": text, "page": f"queues/{one['name']}"}
    for topic, count in kernel.broker.stored.counts.items():
        text = f"{count} damaged batches in topic {topic}; see headgate log verify"
        yield {"text": text, "page": f"topics/{topic}"}


def _expiring(state: AdminState, kernel: Kernel) -> Iterator[dict[str, str]]:
    """Yield the certificates that expire within ``EXPIRES_WITHIN_DAYS``, or have expired."""
    for adapter in state.adapters.values():
        for listener in adapter.listeners if isinstance(adapter, HasListeners) else ():
            expiry_unix_s = listener.certificate_expiry_unix_s
            if expiry_unix_s is None:
                continue
            days = (expiry_unix_s * 1_000 - kernel.clock.unix_ms()) // _DAY_MS
            if days < EXPIRES_WITHIN_DAYS:
                when = f"expires in {days} day(s)" if days >= 0 else "has expired"
                text = f"the certificate of {listener.name} {when}: {listener.config.tls_cert}"
                yield {"text": text, "page": ""}


def _dead_letters(kernel: Kernel) -> list[dict[str, Any]]:
    """Return the dead-letter queues that are not empty, the longest first."""
    queues = _few_queues(kernel)
    named = {one.settings.dead_letter_topic for one in queues} - {""}
    found = [(sum(one.counts()), one.name.name) for one in queues if one.name.name in named]
    longest = heapq.nlargest(SHOWN_MAX, (one for one in found if one[0]))
    return [{"name": name, "count": count} for count, name in longest]


def _largest_topics(kernel: Kernel) -> list[dict[str, Any]]:
    if kernel.topics.partition_count > PARTITIONS_MAX:
        return []
    found = (
        (sum(map(kernel.broker.stored_bytes, topic.partition_ids)), topic.name.name)
        for topic in kernel.topics.topics()
    )
    return [{"name": name, "bytes": size} for size, name in heapq.nlargest(SHOWN_MAX, found)]


def _furthest_behind(kernel: Kernel) -> list[dict[str, Any]]:
    if kernel.cursors.count > POSITIONS_MAX:
        return []
    found = ((lag, name) for name, lag in lags(kernel))
    return [{"name": name, "lag": lag} for lag, name in heapq.nlargest(SHOWN_MAX, found)]


def _longest_queues(kernel: Kernel) -> list[dict[str, Any]]:
    found = [(one.counts(), one.name.name) for one in _few_queues(kernel)]
    longest = heapq.nlargest(SHOWN_MAX, found, key=lambda pair: pair[0].ready)
    return [{"name": name, **counts._asdict()} for counts, name in longest]


def _few_queues(kernel: Kernel) -> list[Queue]:
    """Return the queues, none where they are too many to be counted at each look."""
    queues = kernel.queues.of_clients()
    return queues if len(queues) <= QUEUES_MAX else []
