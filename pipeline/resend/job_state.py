"""State of a job that sends records again: the records already sent, read from the targets.

Each sent record has a header with the job and the record's original position. So the target itself
has the state, on every machine, in one write with the record: state kept anywhere else would be
older or newer than the records after a kill. The committed offsets of a consumer group of the job's
name mark where reading back begins. When those have expired, the whole target is read.

The same group excludes two runs of one job at a time: a run is its only member while it lives. A
run that ends without having sent anything removes the group, so that the id stays unused.
"""

import re
import threading
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from gateway.clock import Clock
from gateway.errors import GatewayError, RequestError
from pipeline.resend.endpoint import ANSWER_S_MAX, Endpoint, Headers, silent
from pipeline.resend.header_reader import HeaderReader

_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_SESSION_MS: Final = 10_000
_AWAY_MS_MAX: Final = 86_400_000  # the longest that librdkafka allows between two polls
_TAKE_OVER_MS_MAX: Final = 3 * _SESSION_MS  # until the session of a killed run has expired
_POLL_S: Final = 0.2
_GATHERED_MAX: Final = 100_000


class JobRuns(GatewayError):
    """Another run with the same id is active, or has taken over."""


class RecordPosition(NamedTuple):
    """Original position of a record that was sent again."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


def check_id(job_id: str) -> str:
    """Return the job id if a header can hold it. Error: ``RequestError``."""
    if _ID.fullmatch(job_id) is None:
        raise RequestError(f"--id {job_id!r}: up to 64 of A-Z, a-z, 0-9, '.', '_', '-'")
    return job_id


def marker(job_id: str, position: RecordPosition, rest: str = "") -> bytes:
    """Return the header's value: ``<id> <topic>/<partition>/<offset>`` and an additional text.

    >>> marker("nightly", RecordPosition("orders", 0, 17), "s3://lake/orders")
    b'nightly orders/0/17 s3://lake/orders'
    """
    return f"{job_id} {position} {rest}".rstrip().encode()


def parse_marker(job_id: str, value: bytes | None) -> RecordPosition | None:
    """Return the position in a marker of this job; None for another job's.

    >>> parse_marker("nightly", b"nightly orders/0/17"), parse_marker("nightly", b"x orders/0/17")
    (RecordPosition(topic='orders', partition=0, offset=17), None)
    """
    parts = (value or b"").decode("utf-8", "replace").split(" ")
    if len(parts) == 1 or parts[0] != job_id:
        return None
    topic, _, rest = parts[1].partition("/")
    partition, _, offset = rest.partition("/")
    if not (partition.isdecimal() and offset.isdecimal()):
        return None
    return RecordPosition(topic, int(partition), int(offset))


class Done:
    """Set of positions as ranges: 16 bytes for each run of offsets in a partition."""

    def __init__(self) -> None:
        self.count = 0
        self._gathered: dict[tuple[str, int], list[int]] = {}
        self._gathered_count = 0
        self._ranges: dict[tuple[str, int], npt.NDArray[np.int64]] = {}

    def add(self, position: RecordPosition) -> None:
        """Add a position; a repeated one is counted again."""
        self._gathered.setdefault(position[:2], []).append(position.offset)
        self._gathered_count += 1
        self.count += 1
        if self._gathered_count >= _GATHERED_MAX:
            self._settle()

    def __contains__(self, position: RecordPosition) -> bool:
        if self._gathered_count:
            self._settle()
        ranges = self._ranges.get(position[:2])
        if ranges is None:
            return False
        at = int(np.searchsorted(ranges[:, 0], position.offset, side="right")) - 1
        return at >= 0 and position.offset < int(ranges[at, 1])

    def _settle(self) -> None:
        for place, offsets in self._gathered.items():
            new = np.array(offsets, np.int64)
            both = np.stack([new, new + 1], axis=1)
            if place in self._ranges:
                both = np.concatenate([self._ranges[place], both])
            self._ranges[place] = _joined(both)
        self._gathered.clear()
        self._gathered_count = 0


def _joined(ranges: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return ranges (first, end) in order, joining adjacent ones."""
    ranges = ranges[np.argsort(ranges[:, 0])]
    ends = np.maximum.accumulate(ranges[:, 1])
    begins = np.flatnonzero(np.concatenate([[True], ranges[1:, 0] > ends[:-1]]))
    last = np.concatenate([begins[1:] - 1, [len(ranges) - 1]])
    return np.stack([ranges[begins, 0], ends[last]], axis=1)


class JobState:
    """A run of a job: the only one with its id at a time, with the records sent by earlier runs.

    ``anchor`` is any existing topic: a group's member has to subscribe to one. ``on_lost`` is
    called, in a thread, when the endpoint has removed the run from the group. ``has_sent_none`` is
    set by a run that has sent nothing and ends without an error.
    """

    def __init__(  # noqa: PLR0913 - the job, its target, and how to look for it
        self,
        endpoint: Endpoint,
        *,
        job: str,
        job_id: str,
        header: str,
        anchor: str,
        clock: Clock,
        on_lost: Callable[[], None] | None = None,
    ) -> None:
        self.done = Done()
        self._endpoint = endpoint
        self._job_id = job_id
        self._header = header
        self._anchor = anchor
        self._clock = clock
        self._group = f"headgate.{job}.{job_id}"
        self._is_member = threading.Event()
        self._is_lost = False
        self._tell_lost = on_lost
        self._ends = threading.Event()
        self._floors: dict[
            str, dict[int, int]
        ] = {}  # by topic: first offsets of this id's records
        self.has_sent_none = False
        self._lock = threading.Lock()  # one call at a time: two calls have deadlocked
        self._member = Consumer(
            endpoint.client_config()
            | {
                "group.id": self._group,
                "enable.auto.commit": False,
                "session.timeout.ms": _SESSION_MS,
                "max.poll.interval.ms": _AWAY_MS_MAX,
            }
        )
        self._thread = threading.Thread(target=self._stay, daemon=True)

    def __enter__(self) -> Self:
        """Join the group. Errors: ``JobRuns``, ``EndpointSilent``."""
        try:
            self._wait_until_alone()
            self._member.subscribe(
                [self._anchor],
                on_assign=self._on_assign,
                on_revoke=lambda member, _: member.unassign(),
                on_lost=self._on_lost,
            )
            self._thread.start()
            if not self._is_member.wait(ANSWER_S_MAX) or self._member_count() > 1:
                self.__exit__()
                raise self._runs()
        except KafkaException as error:
            raise silent(self._endpoint, error) from error
        return self

    def __exit__(self, kind: object = None, *_exc: object) -> None:
        self._ends.set()
        if self._thread.is_alive():
            self._thread.join()
        self._member.close()
        if self._floors and (kind is not None or self.has_sent_none):
            with suppress(KafkaException):  # a group that stays costs the next run some reading
                self._forget_unless_used()

    def check(self) -> None:
        """Check that the run is still a member. Error: ``JobRuns`` when another may run."""
        if self._is_lost:
            raise self._runs()

    def prepare(self, topic: str, partition_count: int, *, is_new: bool) -> None:
        """Read back the records that this job has sent to a topic; call it before the first record.

        ``is_new``: the id was created for this run, so there is nothing to read back.
        Errors: ``EndpointSilent``, ``JobRuns``.
        """
        places = [TopicPartition(topic, number) for number in range(partition_count)]
        try:
            with self._lock:
                noted = self._member.committed(places, timeout=ANSWER_S_MAX)
            floors = {one.partition: one.offset for one in noted if one.offset >= 0}
            with closing(HeaderReader(self._endpoint, self._clock)) as reader:
                ends = reader.ends(places)
                before = self.done.count
                if not is_new:
                    for headers in reader.headers(places, floors, ends):
                        self._note(headers)
            # Records found without a floor must be found again: then the floor is the log's start.
            has_old = self.done.count > before
            new_floors = [
                TopicPartition(topic, number, 0 if has_old else end)
                for number, end in ends.items()
                if number not in floors
            ]
            if new_floors:
                with self._lock:
                    self._member.commit(offsets=new_floors, asynchronous=False)
            self._floors[topic] = {one.partition: one.offset for one in new_floors} | floors
        except KafkaException as error:
            raise silent(self._endpoint, error) from error

    def _forget_unless_used(self) -> None:
        """Remove the group if no target has a record of this id. Error: ``KafkaException``.

        A record that a task sends later is found without the group too, by reading all. The
        endpoint refuses to remove a group that another run is a member of.
        """
        if self.done.count or any(map(self._is_used, self._floors.items())):
            return
        admin = AdminClient(self._endpoint.client_config())
        removed = admin.delete_consumer_groups([self._group], request_timeout=ANSWER_S_MAX)
        removed[self._group].result(2 * ANSWER_S_MAX)

    def _is_used(self, target: tuple[str, Mapping[int, int]]) -> bool:
        topic, floors = target
        places = [TopicPartition(topic, number) for number in floors]
        with closing(HeaderReader(self._endpoint, self._clock)) as reader:
            ends = reader.ends(places)
            return any(
                name == self._header and parse_marker(self._job_id, value) is not None
                for headers in reader.headers(places, floors, ends)
                for name, value in headers
            )

    def _note(self, headers: Headers) -> None:
        for name, value in headers:
            position = parse_marker(self._job_id, value) if name == self._header else None
            if position is not None:
                self.done.add(position)

    def _wait_until_alone(self) -> None:
        """Wait until no other member is left; a killed run is a member until its session ends."""
        deadline_ms = self._clock.monotonic_ms() + _TAKE_OVER_MS_MAX
        while self._member_count():
            if self._clock.monotonic_ms() > deadline_ms:
                raise self._runs()
            self._ends.wait(_POLL_S)

    def _member_count(self) -> int:
        admin = AdminClient(self._endpoint.client_config())
        (found,) = admin.describe_consumer_groups(
            [self._group], request_timeout=ANSWER_S_MAX
        ).values()
        return len(found.result(2 * ANSWER_S_MAX).members)

    def _stay(self) -> None:
        while not self._ends.is_set():
            with self._lock:
                self._member.poll(0)
            self._ends.wait(_POLL_S)

    def _on_assign(self, member: Consumer, _places: object) -> None:
        member.assign([])  # it reads nothing: the membership is the lock
        self._is_member.set()

    def _on_lost(self, member: Consumer, _places: object) -> None:
        self._is_lost = True
        if self._tell_lost is not None:
            self._tell_lost()
        member.unassign()

    def _runs(self) -> JobRuns:
        return JobRuns(f"a run with --id {self._job_id} is alive; two would send records twice")
