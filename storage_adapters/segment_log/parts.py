"""Construction of the background parts of an open log."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from gateway.clock import Clock
from storage_adapters.segment_log.backup import HoldingFiles
from storage_adapters.segment_log.catalog import Catalog
from storage_adapters.segment_log.closing import Closer
from storage_adapters.segment_log.config import SegmentLogConfig
from storage_adapters.segment_log.key_indexes import KeyIndexes, Read
from storage_adapters.segment_log.metrics import SegmentLogMetrics
from storage_adapters.segment_log.segment_files import SegmentMaker
from storage_adapters.segment_log.settled_change import Changer
from storage_adapters.segment_log.settled_output import OutputSpec, Pace
from storage_adapters.segment_log.settler import Settler
from storage_adapters.segment_log.writer import Writer


class Dependencies(NamedTuple):
    """Dependencies of all parts. ``wake`` wakes the sweeper and the settler."""

    config: SegmentLogConfig
    data_dir: Path
    data_uuid: UUID
    incarnation: int
    clock: Clock
    files: HoldingFiles
    catalog: Catalog
    metrics: SegmentLogMetrics
    writer: Writer
    wake: Callable[[], None]


def new_maker(base: Dependencies) -> SegmentMaker:
    """Build the maker of segments."""
    return SegmentMaker(
        files=base.files,
        data_dir=base.data_dir,
        data_uuid=base.data_uuid,
        incarnation=base.incarnation,
        segment_bytes=base.config.segment_bytes,
        clock=base.clock,
        on_error=base.writer.fail,
    )


def new_closer(base: Dependencies, executor: ThreadPoolExecutor) -> Closer:
    """Build the closer of full segments, which works in the executor's thread."""
    return Closer(
        executor=executor,
        files=base.files,
        catalog=base.catalog,
        writer=base.writer,
        metrics=base.metrics,
        on_closed=base.wake,
    )


def new_changer(base: Dependencies, on_freed: Callable[[], None]) -> Changer:
    """Build the changer of settled files, with a thread of its own."""
    return Changer(
        catalog=base.catalog,
        writer=base.writer,
        files=base.files,
        data_dir=base.data_dir,
        metrics=base.metrics,
        on_freed=on_freed,
    )


def new_settler(
    base: Dependencies, changer: Changer, pace: Pace, last_sequence: Callable[[], int]
) -> Settler:
    """Build the settler, which decides on changes."""
    spec = OutputSpec(
        files=base.files,
        data_dir=base.data_dir,
        data_uuid=base.data_uuid,
        incarnation=base.incarnation,
        created_unix_ms=base.clock.unix_ms(),
        settled_bytes_max=base.config.settled_bytes_max,
        own_bytes=base.config.settle_own_bytes,
        pace=pace,
    )
    return Settler(
        config=base.config,
        catalog=base.catalog,
        changer=changer,
        clock=base.clock,
        metrics=base.metrics,
        spec=spec,
        last_sequence=last_sequence,
        wake=base.wake,
    )


def new_key_indexes(base: Dependencies, pace: Pace, read: Read) -> KeyIndexes:
    """Build the key indexes."""
    return KeyIndexes(
        base.catalog,
        files=base.files,
        data_dir=base.data_dir,
        pace=pace,
        read=read,
        memory_bytes_max=base.config.key_index_memory_bytes,
    )
