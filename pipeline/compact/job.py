"""``compact``: merge small objects of a bucket into large ones by partition, on many machines.

The node's own code plans, builds and commits the merges; tasks of Spark read, build and put, and
the driver commits, one round at a time. A node keeps the live objects in memory, so it must not run
meanwhile: this job takes over the data, as a starting node does, and a node that runs nevertheless
can commit nothing more and stops. Nothing is lost by that, and a job that dies at any moment has
committed whole rounds only.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from gateway.clock import Clock
from gateway.errors import StorageUnavailable
from pipeline.compact.checks import released_sequence
from pipeline.compact.rounds import MergeRound, Outcome, merge, plan_rounds, told_of
from pipeline.log.options import S3Place
from pipeline.log.s3_log import bucket_of
from storage_adapters.s3.committer import Committer
from storage_adapters.s3.config import S3Config
from storage_adapters.s3.index import Index
from storage_adapters.s3.merged_change import Changer, Replacement
from storage_adapters.s3.objects import ObjectHeader, Part
from storage_adapters.s3.opening import catalog_of, read_marker
from storage_adapters.s3.rows import RowsCache, rows_max_of
from storage_adapters.s3.state import Catalog

if TYPE_CHECKING:  # a dry run needs no Spark
    from pyspark import Broadcast
    from pyspark.sql import SparkSession

RESERVE: Final = 256  # object numbers reserved at a time
_ROWS_BYTES_MAX: Final = 16 * 1024 * 1024


class Planned(NamedTuple):
    """Work known at the start; merged objects may be merged again later."""

    rounds: int
    objects: int
    size_bytes: int


class Merged(NamedTuple):
    """Result of one round, or the numbers of objects that it ``left`` unmerged.

    ``damage`` names the damaged one and its fault. The others have headers that a start reads.
    """

    objects: int = 0
    made: int = 0
    size_bytes: int = 0
    left: tuple[int, ...] = ()
    damage: str = ""


class Compaction:
    """One run, which merges repeatedly until nothing is left to merge."""

    def __init__(self, s3: S3Place, config: S3Config, clock: Clock) -> None:
        self._s3 = s3
        # Objects of any age: the job was requested, and does not wait for more.
        self._config = config.model_copy(update={"merge_after_ms": 0})
        self._clock = clock
        self._left: set[int] = set()

    def plan(self) -> Planned:
        """Return the work to do without changing anything. Error: ``StorageUnavailable``."""
        with closing(self._index()) as index:
            self._data_uuid(index)
            catalog = catalog_of(index.load())
        rounds = self._rounds(catalog)
        return Planned(
            len(rounds),
            sum(len(one.inputs) for one in rounds),
            sum(one.size_bytes for one in rounds),
        )

    def run(
        self, spark: "SparkSession", node_id: int, on_merged: Callable[[Merged], None]
    ) -> None:
        """Take over the data and merge. Errors: ``StorageUnavailable``, those of Spark."""
        asyncio.run(self._run(spark, node_id, on_merged))

    async def _run(
        self, spark: "SparkSession", node_id: int, on_merged: Callable[[Merged], None]
    ) -> None:
        index = self._index()
        data_uuid = self._data_uuid(index)
        owned = index.take_over(node_id, reserve=RESERVE)
        catalog = catalog_of(index.load())
        committer = Committer(
            index,
            epoch=owned.epoch,
            reserved=owned.reserved,
            reserve=RESERVE,
            on_fault=lambda _: None,  # a commit raises it, too
        )
        rows = RowsCache(
            lambda number: committer.run(lambda of: of.rows(number)),
            bytes_max=_ROWS_BYTES_MAX,
            rows_max=partial(rows_max_of, catalog),
        )
        changer = Changer(
            catalog,
            bucket_of(self._s3),
            committer,
            rows,
            prefix=self._s3.prefix,
            forget=lambda _: None,
        )
        try:
            released = released_sequence(self._s3)
            while rounds := self._rounds(catalog):
                told = spark.sparkContext.broadcast(told_of(catalog.partitions))
                work = _Work(spark, self._s3, released, told, changer, data_uuid, self._clock)
                async for merged in work.done(rounds):
                    self._left.update(merged.left)
                    on_merged(merged)
        finally:
            changer.stop()
            await committer.stop()

    def _rounds(self, catalog: Catalog) -> list[MergeRound]:
        return plan_rounds(
            catalog,
            self._config,
            now_unix_ms=self._clock.unix_ms(),
            skip=self._left,
        )

    def _index(self) -> Index:
        index = Index(self._s3.catalog, clock=self._clock)
        index.open(create=False)
        return index

    def _data_uuid(self, index: Index) -> UUID:
        """Return the data uuid; bucket and index must agree."""
        found = read_marker(self._config, bucket_of(self._s3))
        if found is None or found != index.data_uuid():
            raise StorageUnavailable(
                f"bucket {self._s3.bucket!r}, prefix {self._s3.prefix!r}, holds "
                f"{'no data' if found is None else f'the data {found}'}, and the database has the "
                f"index of {index.data_uuid()}: correct [storage] or [metadata] in the config"
            )
        return found


class _Work:
    """Rounds without common objects, as many at once as Spark has processors."""

    def __init__(  # noqa: PLR0913, PLR0917 - what a round works with
        self,
        spark: "SparkSession",
        s3: S3Place,
        released: int,
        told: "Broadcast[dict[int, Part]]",
        changer: Changer,
        data_uuid: UUID,
        clock: Clock,
    ) -> None:
        self._spark = spark
        self._s3 = s3
        self._released = released
        self._told = told
        self._changer = changer
        self._data_uuid = data_uuid
        self._clock = clock

    async def done(self, rounds: Sequence[MergeRound]) -> AsyncIterator[Merged]:
        """Yield the results of rounds in the order in which they end."""
        threads = ThreadPoolExecutor(self._spark.sparkContext.defaultParallelism)
        try:
            for one in asyncio.as_completed([self._do(threads, one) for one in rounds]):
                yield await one
        finally:
            threads.shutdown(cancel_futures=True)
            self._changer.give_up()  # numbers of failed rounds

    async def _do(self, threads: ThreadPoolExecutor, round_: MergeRound) -> Merged:
        places = [
            ObjectHeader(
                self._data_uuid,
                await self._changer.take_number(),
                self._changer.epoch,
                self._clock.unix_ms(),
            )
            for _ in round_.outputs
        ]
        loop = asyncio.get_running_loop()
        outcome = await loop.run_in_executor(threads, self._on_spark, round_, places)
        if outcome.left:
            damage = f"object {outcome.left[0]}: {outcome.damage}" if outcome.damage else ""
            return Merged(left=outcome.left, damage=damage)
        gone = [stored.number for stored in round_.inputs]
        new = await self._changer.commit(Replacement(outcome.made, gone))
        return Merged(len(gone), len(new), round_.size_bytes)

    def _on_spark(self, round_: MergeRound, places: list[ObjectHeader]) -> Outcome:
        told, s3, released = self._told, self._s3, self._released
        tasks = self._spark.sparkContext.parallelize([(round_, places)], 1)
        return tasks.map(lambda one: merge(*one, told.value, s3, released)).collect()[0]
