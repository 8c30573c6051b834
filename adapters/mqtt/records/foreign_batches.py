"""Batches that other protocols appended, decoded: large ones in a thread, beside the loop."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, Protocol, TypeVar

from adapters.mqtt.mapping import SteadyDeadline
from adapters.mqtt.route_config import RouteConfig
from adapters.mqtt.wire import PublishRun
from gateway.model import COMPRESSION_MASK, Buffer, parse_batch_header

R = TypeVar("R")

RUNS_HANDED_OUT_MAX: Final = 1_000  # of a large batch, before others have their turn


class _Decoder(Protocol[R]):
    """``mapping.runs_of_batch`` or ``mixed_runs_of_batch``."""

    def __call__(
        self,
        batch: Buffer,
        route: RouteConfig,
        *,
        from_offset: int,
        skipped: Counter[str],
        steady_deadline: SteadyDeadline,
    ) -> list[R]:
        """Return the runs of a batch from an offset on."""


async def decode_beside(
    decode: _Decoder[R],
    batch: Buffer,
    route: RouteConfig,
    skipped: Counter[str],
    steady_deadline: SteadyDeadline,
) -> list[R]:
    """Return all runs of a large batch, decoded in a thread.

    What is wanted is the loop's to say, so that nothing is left out.
    """
    found: Counter[str] = Counter()
    runs = await asyncio.to_thread(
        decode,
        batch,
        route,
        from_offset=parse_batch_header(batch).base_offset,
        skipped=found,
        steady_deadline=steady_deadline,
    )
    skipped.update(found)
    return runs


def kept_bytes(batch: Buffer, runs: Sequence[PublishRun]) -> int:
    """Return what keeping the runs of a batch takes, about: compressed bytes may become many."""
    if parse_batch_header(batch).attributes & COMPRESSION_MASK:
        return sum(sum(map(len, run.payloads)) for run in runs)
    return len(batch)


def handed_out_together(runs: Sequence[PublishRun]) -> Iterator[Sequence[PublishRun]]:
    """Yield runs in groups that one turn of the loop hands out."""
    for start in range(0, len(runs), RUNS_HANDED_OUT_MAX):
        yield runs[start : start + RUNS_HANDED_OUT_MAX]
