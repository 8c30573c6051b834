"""Closing of segments: a thread writes the footer, which then replaces the live index."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from storage_adapters.formats.footer import Trailer
from storage_adapters.segment_log.catalog import Catalog
from storage_adapters.segment_log.files import Files
from storage_adapters.segment_log.metrics import SegmentLogMetrics
from storage_adapters.segment_log.segment_files import write_footer
from storage_adapters.segment_log.segments import Segment
from storage_adapters.segment_log.writer import Writer


class Closer:
    """Closer of segments whose last entry is written. ``on_closed`` runs after each."""

    def __init__(  # The parts that a closed segment changes.
        self,
        *,
        executor: ThreadPoolExecutor,
        files: Files,
        catalog: Catalog,
        writer: Writer,
        metrics: SegmentLogMetrics,
        on_closed: Callable[[], None],
    ) -> None:
        self._executor = executor
        self._files = files
        self._catalog = catalog
        self._writer = writer
        self._metrics = metrics
        self._on_closed = on_closed
        self._closing: set[asyncio.Future[Trailer]] = set()

    def close(self, segment: Segment) -> None:
        """Write a segment's footer in a thread; its live index serves reads until that is done."""
        loop = asyncio.get_running_loop()
        closing = loop.run_in_executor(
            self._executor, write_footer, self._files, segment, segment.fd
        )
        self._closing.add(closing)
        closing.add_done_callback(partial(self._note_closed, segment))

    def _note_closed(self, segment: Segment, closing: asyncio.Future[Trailer]) -> None:
        self._closing.discard(closing)
        error = closing.exception()
        if error is not None:
            self._writer.fail(error)
            return
        segment.close_with(closing.result())
        self._catalog.note_closed(segment)
        self._writer.note_closed(segment)
        self._catalog.handles.release(segment)
        self._metrics.segments_closed += 1
        self._on_closed()

    async def wait(self) -> None:
        """Wait until every segment under way is closed."""
        if self._closing:
            await asyncio.wait(self._closing)
