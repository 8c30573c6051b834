"""Access to the log that options name, in a folder or a bucket: its views and extents.

``pipeline.log.s3_log`` is imported for a log in S3 only: it needs boto3.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Final

from gateway.clock import SystemClock
from gateway.config.settings import Settings
from gateway.errors import RequestError, StorageUnavailable
from gateway.sql.engines import engine_url
from pipeline.log import local_log
from pipeline.log.options import Options
from pipeline.log.views import Extent, ExtentReader, PartitionView

LEASE_MS: Final = 600_000
"""Time that objects stay after the last sign of life of a query, stream or job that reads them."""
_EXTEND_MS: Final = LEASE_MS // 5

_extended_ms: dict[
    str, int
] = {}  # leases of this process's tasks: when they were last extended
_CLOCK: Final = SystemClock()


def views(options: Options, *, with_unsynced: bool | None = None) -> dict[int, PartitionView]:
    """Return all partitions by id, as durable now.

    ``with_unsynced`` None: by the options. Errors: ``StorageUnavailable``.
    """
    if options.s3 is not None:
        from pipeline.log import s3_log

        return s3_log.read_view(options.s3)
    if with_unsynced is None:
        with_unsynced = options.with_unsynced
    return local_log.read_view(options.data_dir, with_unsynced=with_unsynced)


def find_again(options: Options, extent: Extent) -> list[Extent]:
    """Return the new places of an extent's offsets after its file was removed.

    Errors: ``OffsetOutOfRange`` when some were removed, ``StorageUnavailable``.
    """
    return relocate(options, [extent])[0]


def relocate(options: Options, extents: Sequence[Extent]) -> list[list[Extent]]:
    """Return ``find_again`` of each extent, with one view of the log."""
    if options.s3 is not None:
        from pipeline.log import s3_log

        return s3_log.relocate(options.s3, extents)
    return local_log.relocate(options.data_dir, extents)


def open_extents(
    options: Options, path: str, extents: Sequence[Extent]
) -> AbstractContextManager[ExtentReader]:
    """Open a file of a view for ``extents``, which will be read in this order, or in part.

    Errors, here and when a batch is read: ``FileGone``, ``StorageUnavailable``.
    """
    if options.s3 is not None:
        from pipeline.log import s3_log

        return s3_log.open_extents(options.s3, path, extents)
    return local_log.open_extents(path)


class Lease:
    """Lease that protects the log's objects from deletion during a read.

    Files need no lease: an open file can be read to its end.
    """

    def __init__(self, options: Options) -> None:
        self._s3 = options.s3
        self._id = ""

    def renew(self) -> str:
        """Take or extend the lease, for ``LEASE_MS`` from now on. Call it before ``views``.

        Return the argument of ``stay``, empty when no lease is needed. Error:
        ``StorageUnavailable``.
        """
        if self._s3 is None:
            return ""
        from pipeline.log import s3_log

        if not self._id or not s3_log.extend_lease(self._s3, self._id, ttl_ms=LEASE_MS):
            self._id = s3_log.take_lease(self._s3, ttl_ms=LEASE_MS)
        return self._id

    def end(self) -> None:
        """End the lease; one that cannot be ended runs out."""
        if self._s3 is not None and self._id:
            from pipeline.log import s3_log

            with suppress(StorageUnavailable):
                s3_log.end_lease(self._s3, self._id)
            self._id = ""


def stay(options: Options, lease: str) -> None:
    """Extend a lease now and then; called by tasks, which outlive the planning process.

    When the database is away, or the lease ran out, the task continues: a missing object is found
    again (``relocate``), or is an error.
    """
    if options.s3 is None or not lease:
        return
    now_ms = _CLOCK.monotonic_ms()
    if now_ms - _extended_ms.get(lease, now_ms - _EXTEND_MS) < _EXTEND_MS:
        return
    from pipeline.log import s3_log

    _extended_ms.clear()  # a worker has one task at a time
    _extended_ms[lease] = now_ms
    with suppress(StorageUnavailable):
        s3_log.extend_lease(options.s3, lease, ttl_ms=LEASE_MS)


@contextmanager
def leased(options: Options) -> Iterator[None]:
    """Hold a lease while a job's driver plans and runs."""
    lease = Lease(options)
    is_over = threading.Event()

    def extend() -> None:
        while not is_over.wait(_EXTEND_MS / 1_000):
            with suppress(StorageUnavailable):
                lease.renew()

    thread = threading.Thread(target=extend, name="lease", daemon=True)
    if lease.renew():
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        if thread.is_alive():
            thread.join()
        lease.end()


def advice(options: Options, extent: Extent) -> str:
    """Return advice about a damaged batch."""
    if options.s3 is not None:
        return "Restore the object from a version or a copy of the bucket"
    return (
        f"`headgate log verify {Path(extent.path).parents[1]}` says what else is damaged; restore "
        "the file from a backup"
    )


def source_options(settings: Settings) -> dict[str, str]:
    """Return the options for the log of a node with these settings.

    Error: ``RequestError`` for a storage that jobs cannot read.
    """
    data_dir = settings.node.data_dir.absolute()
    adapter = settings.storage.adapter
    if adapter == "segment_log":
        return {"path": str(data_dir)}
    if adapter != "s3":
        raise RequestError(f"the storage {adapter!r} keeps nothing that a job could read")
    from storage_adapters.s3.config import S3Config

    config = settings.storage.options
    assert isinstance(config, S3Config)
    found = {
        "catalog": engine_url(settings.metadata.url, data_dir),
        "bucket": config.bucket,
        "prefix": config.prefix,
        "endpointUrl": config.endpoint_url,
        "region": config.region,
        "profile": config.profile,
        "addressing": config.addressing,
    }
    return {name: value for name, value in found.items() if value}
