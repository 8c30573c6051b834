"""Uploads of sealed groups: objects are built and put in parallel, committed in order.

Groups that are in the bucket when a commit ends share the next commit. During an outage of bucket
or database, of any length, accepted appends wait in order and are tried again.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar, TypeVarTuple
from uuid import UUID

from gateway.clock import Clock
from gateway.errors import StorageUnavailable, as_value
from gateway.model import Buffer
from gateway.storage import OnDone
from storage_adapters.formats.object_index import pack_rows
from storage_adapters.s3.appender import Group
from storage_adapters.s3.bucket import Bucket, KeyTaken
from storage_adapters.s3.change import Change, NewObject
from storage_adapters.s3.committer import Committer
from storage_adapters.s3.config import S3Config
from storage_adapters.s3.metrics import S3Metrics
from storage_adapters.s3.objects import (
    PREVIOUS_MAX,
    Appends,
    LogObject,
    ObjectHeader,
    Part,
    build_log_object,
)
from storage_adapters.s3.outage import Outage
from storage_adapters.s3.state import KIND_LOG, StoredObject, object_key

OBJECTS_PER_COMMIT_MAX: Final = 16
ANSWERS_PER_TICK: Final = 256  # about a millisecond; then the loop runs other tasks
_PAUSE_S: Final = 0.5  # between rounds of tries, which have pauses of their own

_T = TypeVar("_T")
_Args = TypeVarTuple("_Args")


class Uploaded:
    """A group whose object is in the bucket."""

    __slots__ = ("built", "group", "new")

    def __init__(self, group: Group, built: LogObject, new: NewObject) -> None:
        self.group = group
        self.built = built
        self.new = new


class Uploader:
    """Uploader. ``describe`` returns footer parts; ``publish`` makes a commit visible."""

    def __init__(  # noqa: PLR0913 - the parts that a group passes
        self,
        config: S3Config,
        bucket: Bucket,
        committer: Committer,
        clock: Clock,
        *,
        data_uuid: UUID,
        describe: Callable[[Group], dict[int, Part]],
        publish: Callable[[list[Uploaded]], None],
        finished: Callable[[Group], None],
    ) -> None:
        self._config = config
        self._bucket = bucket
        self._committer = committer
        self._clock = clock
        self._data_uuid = data_uuid
        self._loop = asyncio.get_running_loop()
        self._describe = describe
        self._publish = publish
        self._finished = finished
        self._executor = ThreadPoolExecutor(config.uploads_max, "headgate-put")
        self._room = asyncio.Semaphore(config.uploads_max)
        self._waiting: deque[tuple[Group, asyncio.Future[Uploaded]]] = deque()
        self._committing: asyncio.Task[None] | None = None
        self._moved_ms = 0
        self._began_sequence = -1  # of the first group; -1 before it
        self._answers: deque[tuple[OnDone, StorageUnavailable | None]] = deque()
        self._is_closed = False
        self._outage = Outage("the bucket", clock)
        self.metrics = S3Metrics()

    def add(self, group: Group) -> None:
        """Add a sealed group; appends complete in the order of calls."""
        group.sealed_ms = self._clock.monotonic_ms()
        if self._began_sequence < 0:
            self._began_sequence = group.first_sequence
        upload: asyncio.Future[Uploaded]
        try:
            upload = self._loop.create_task(self._upload(group, self._describe(group)))
        except Exception as mistake:  # noqa: BLE001 - ours; nothing behind it must count
            upload = self._loop.create_future()
            upload.set_exception(_unavailable(mistake))
        self._waiting.append((group, upload))
        if self._committing is None:
            self._committing = self._loop.create_task(self._commit_all())

    @property
    def waits_ms(self) -> int:
        """Time since the last commit while groups wait; 0 without waiting groups."""
        if not self._waiting:
            return 0
        since_ms = max(self._waiting[0][0].sealed_ms, self._moved_ms)
        return self._clock.monotonic_ms() - since_ms

    @property
    def waiting_count(self) -> int:
        """Number of groups that are sealed and not yet committed."""
        return len(self._waiting)

    async def drain(self, ms_max: int) -> None:
        """Wait until all is committed, within a time limit; fail the rest."""
        if self._committing is not None:
            await asyncio.wait([self._committing], timeout=ms_max / 1_000)
        self._is_closed = True
        self._bucket.stop()
        self._committer.close()
        if self._committing is not None:
            await asyncio.wait([self._committing])
        while self._answers:  # noqa: ASYNC110 - the loop gives them, some in each turn
            await asyncio.sleep(0)

    async def stop(self) -> None:
        """End the threads after abandoned requests have ended or timed out."""
        await self._loop.run_in_executor(None, self._executor.shutdown)

    async def _upload(self, group: Group, parts: dict[int, Part]) -> Uploaded:
        async with self._room:
            number = await self._committer.take_number()
            place = ObjectHeader(
                self._data_uuid,
                number,
                self._committer.epoch,
                self._clock.unix_ms(),
                min(group.first_sequence - self._began_sequence, PREVIOUS_MAX),
            )
            next_sequence = group.first_sequence + len(group.entries)
            built, rows = await self._in_thread(_build, place, group.appends(), parts)
            # The object has the batches: waiting appends are in memory once.
            group.entries.clear()
            key = object_key(self._config.prefix, number, place.epoch)
            began_s = self._loop.time()
            etag = await self._put(key, built.body)
        metrics, size_bytes = self.metrics, built.size_bytes
        metrics.put_s.observe(self._loop.time() - began_s)
        metrics.object_bytes.observe(size_bytes)
        metrics.objects += 1
        stored = StoredObject(
            number,
            KIND_LOG,
            place.epoch,
            group.first_sequence,
            next_sequence,
            size_bytes,
            etag,
            place.created_unix_ms,
            frozenset([part.partition_id for part in built.parts]),
        )
        return Uploaded(group, built, NewObject(stored, built.parts, rows))

    async def _put(self, key: str, body: Sequence[Buffer]) -> str:
        """Put an object, waiting for the bucket without limit. Errors: ``StorageUnavailable``."""
        while True:
            try:
                etag = await self._in_thread(self._bucket.put, key, body)
            except KeyTaken:
                raise
            except StorageUnavailable as error:
                if self._is_closed or self._committer.fault is not None:
                    raise
                self._outage.note(key, as_value(error))
                await asyncio.sleep(_PAUSE_S)
            else:
                self._outage.over(key)
                return etag

    async def _in_thread(self, work: Callable[[*_Args], _T], *args: *_Args) -> _T:
        return await self._loop.run_in_executor(self._executor, work, *args)

    async def _commit_all(self) -> None:
        """Commit waiting groups in order, until none is left."""
        try:
            while self._waiting:
                await self._commit(await self._next_uploaded())
        except StorageUnavailable as error:
            self._fail(as_value(error))
        except BaseException as error:  # a bug: no caller may wait for ever
            self._fail(_unavailable(error))
            raise
        finally:
            self._committing = None

    async def _next_uploaded(self) -> list[Uploaded]:
        """Return the uploads to commit: the oldest group's, and later ones in the bucket."""
        found = [await self._waiting[0][1]]
        for _, task in list(self._waiting)[1:OBJECTS_PER_COMMIT_MAX]:
            if not task.done() or task.exception() is not None:
                break
            found.append(task.result())
        return found

    async def _commit(self, uploads: list[Uploaded]) -> None:
        change = Change(
            added=tuple([upload.new for upload in uploads]),
            next_sequence=uploads[-1].new.stored.next_sequence,
        )
        began_s = self._loop.time()
        await self._committer.commit(change)
        self.metrics.commit_s.observe(self._loop.time() - began_s)
        self._moved_ms = self._clock.monotonic_ms()
        self._publish(uploads)
        for _ in uploads:
            self._waiting.popleft()
        self._finish([upload.group for upload in uploads], None)

    def _fail(self, error: StorageUnavailable) -> None:
        """Fail all waiting groups, since later ones would leave gaps in the offsets."""
        if not self._is_closed:
            self._is_closed = True
            self._committer.fail(error)
        waiting, self._waiting = self._waiting, deque()
        for _, task in waiting:
            task.cancel()
        self._finish([group for group, _ in waiting], error)

    def _finish(self, groups: list[Group], error: StorageUnavailable | None) -> None:
        for group in groups:
            self._finished(group)
            self._answers.extend([(on_done, error) for on_done in group.callbacks])
        self._loop.call_soon(self._tell)

    def _tell(self) -> None:
        """Run some callbacks in order; the rest in later ticks of the loop."""
        try:
            for _ in range(min(ANSWERS_PER_TICK, len(self._answers))):
                on_done, error = self._answers.popleft()
                on_done(error)
        finally:  # a bug in one callback must not leave the others without an answer
            if self._answers:
                self._loop.call_soon(self._tell)


def _build(
    place: ObjectHeader, appends: Appends, parts: dict[int, Part]
) -> tuple[LogObject, bytes]:
    """Build an object and pack its rows. In a thread."""
    built = build_log_object(place, appends, parts)
    return built, pack_rows(built.rows)


def _unavailable(mistake: BaseException) -> StorageUnavailable:
    """Return the error for waiting callers after an internal error."""
    return StorageUnavailable(f"{type(mistake).__name__}: {mistake}")
