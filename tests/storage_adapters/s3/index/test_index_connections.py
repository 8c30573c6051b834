"""A database that goes away: nothing is called done that is not, and nothing is done twice."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, make_url, text
from sqlalchemy.exc import OperationalError

from gateway.clock import ManualClock
from gateway.sql import engines as sql
from storage_adapters.s3.change import Change
from storage_adapters.s3.index import Fenced, Index, IndexUnavailable, OutcomeUnknown
from tests.storage_adapters.s3.index.changes import OpenIndex, added, bounds, live
from tests.storage_adapters.s3.index.cutting_proxy import Cut, CuttingProxy, proxied
from tests.support.waiting import wait_until

BLOCKED_S = 0.2  # somebody who waits for a lock has not come back after this
WITHIN_S = 60

# --- PostgreSQL


@pytest.fixture
def proxy(empty_postgres_url: str) -> Iterator[CuttingProxy]:
    url = make_url(empty_postgres_url)
    assert url.host is not None
    assert url.port is not None
    with proxied(url.host, url.port) as proxy:
        yield proxy


@pytest.fixture
def behind_proxy(
    empty_postgres_url: str, proxy: CuttingProxy, clock: ManualClock
) -> Iterator[Index]:
    url = make_url(empty_postgres_url).set(port=proxy.port)
    index = Index(url.render_as_string(hide_password=False), clock=clock)
    index.open()
    yield index
    index.close()


def test_a_commit_that_never_reached_the_server_is_not_done(
    behind_proxy: Index, proxy: CuttingProxy
) -> None:
    owned = behind_proxy.take_over(1, reserve=1)
    change = added(*owned.reserved)
    proxy.cut = Cut.BEFORE

    with pytest.raises(OutcomeUnknown):
        behind_proxy.commit(owned.epoch, change)

    assert not behind_proxy.committed(change)
    assert live(behind_proxy) == []
    behind_proxy.commit(owned.epoch, change)
    assert live(behind_proxy) == owned.reserved
    assert behind_proxy.committed(change)


def test_a_commit_whose_answer_was_lost_is_done(
    behind_proxy: Index, proxy: CuttingProxy
) -> None:
    owned = behind_proxy.take_over(1, reserve=2)
    change = added(*owned.reserved)._replace(next_sequence=5, bounds=(bounds(7),))
    proxy.cut = Cut.AFTER

    with pytest.raises(OutcomeUnknown):
        behind_proxy.commit(owned.epoch, change)

    assert behind_proxy.committed(change)
    assert live(behind_proxy) == owned.reserved
    assert behind_proxy.take_over(1, reserve=0).next_sequence == 5


@pytest.mark.parametrize("cut", [Cut.BEFORE, Cut.AFTER])
def test_a_merge_without_a_result_is_told_by_its_inputs(
    behind_proxy: Index, proxy: CuttingProxy, cut: Cut
) -> None:
    owned = behind_proxy.take_over(1, reserve=2)
    behind_proxy.commit(owned.epoch, added(*owned.reserved))
    change = Change(gone=tuple(owned.reserved), bounds=(bounds(7),))
    proxy.cut = cut

    with pytest.raises(OutcomeUnknown):
        behind_proxy.commit(owned.epoch, change)

    assert behind_proxy.committed(change) == (cut is Cut.AFTER)
    behind_proxy.commit(owned.epoch, change)
    assert live(behind_proxy) == []


def test_a_commit_that_is_on_its_way_is_waited_for(
    behind_proxy: Index, proxy: CuttingProxy
) -> None:
    """The question must not be answered with no while the answer can still become yes."""
    owned = behind_proxy.take_over(1, reserve=1)
    change = added(*owned.reserved)
    proxy.cut = Cut.HELD
    with pytest.raises(OutcomeUnknown):
        behind_proxy.commit(owned.epoch, change)

    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(behind_proxy.committed, change)
        assert_blocked(answer)
        proxy.release.set()

        assert answer.result(WITHIN_S)


def test_the_wait_for_a_commit_on_its_way_has_an_end(
    monkeypatch: pytest.MonkeyPatch, behind_proxy: Index, proxy: CuttingProxy
) -> None:
    """The server ends what a node that hangs, or is cut off, has left open."""
    monkeypatch.setattr(sql, "LOCK_TIMEOUT_MS", 100)
    monkeypatch.setattr(sql, "SILENT_TRANSACTION_MS_MAX", 1_000)
    behind_proxy.close()
    behind_proxy.open()  # with those
    owned = behind_proxy.take_over(1, reserve=1)
    change = added(*owned.reserved)
    proxy.cut = Cut.HELD
    with pytest.raises(OutcomeUnknown):
        behind_proxy.commit(owned.epoch, change)

    with pytest.raises(IndexUnavailable, match="lock timeout"):
        behind_proxy.committed(change)
    wait_until(lambda: is_answered(behind_proxy, change), within_s=WITHIN_S, what="an answer")

    assert not behind_proxy.committed(change)
    proxy.release.set()
    behind_proxy.commit(owned.epoch, change)
    assert live(behind_proxy) == owned.reserved


def is_answered(index: Index, change: Change) -> bool:
    try:
        index.committed(change)
    except IndexUnavailable:
        return False
    return True


def test_a_take_over_behind_an_unfinished_commit_sees_it_or_fences_it(
    behind_proxy: Index, proxy: CuttingProxy, empty_postgres_url: str, clock: ManualClock
) -> None:
    owned = behind_proxy.take_over(1, reserve=1)
    next_owner = Index(empty_postgres_url, clock=clock)
    next_owner.open()
    proxy.cut = Cut.HELD
    with pytest.raises(OutcomeUnknown):
        behind_proxy.commit(owned.epoch, added(*owned.reserved))

    with ThreadPoolExecutor(1) as thread:
        taking = thread.submit(next_owner.take_over, 2, reserve=0)
        assert_blocked(taking)
        proxy.release.set()
        taking.result(WITHIN_S)

    assert live(next_owner) == owned.reserved
    with pytest.raises(Fenced):
        behind_proxy.commit(owned.epoch, Change())
    next_owner.close()


def test_a_commit_goes_on_after_the_server_ended_all_sessions(
    empty_postgres_url: str, clock: ManualClock
) -> None:
    index = Index(empty_postgres_url, clock=clock)
    index.open()
    owned = index.take_over(1, reserve=2)
    for number in owned.reserved:
        end_all_sessions(empty_postgres_url)
        index.commit(owned.epoch, added(number))

    assert live(index) == owned.reserved
    index.close()


def end_all_sessions(url: str) -> None:
    """As a restart does: FATAL 57P01 to everybody."""
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(
            text(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
                "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )
        )
    engine.dispose()


def test_a_commit_goes_on_after_the_server_crashed(
    empty_postgres_url: str, clock: ManualClock
) -> None:
    index = Index(empty_postgres_url, clock=clock)
    index.open()
    owned = index.take_over(1, reserve=2)
    first, second = owned.reserved
    index.commit(owned.epoch, added(first))
    crash(empty_postgres_url)

    index.commit(owned.epoch, added(second))

    assert live(index) == owned.reserved
    index.close()


def crash(url: str) -> None:
    """Kill a session's process; back when the server has ended all others, to recover."""
    engine = create_engine(url)
    with engine.connect() as killed, engine.connect() as other:
        pid = killed.scalar(text("SELECT pg_backend_pid()"))
        assert isinstance(pid, int)
        os.kill(pid, signal.SIGKILL)
        # The server takes a moment to notice: until then the others go on.
        wait_until(lambda: is_ended(other), within_s=WITHIN_S, what="the end of a session")
        wait_until(lambda: is_open(engine), within_s=WITHIN_S, what="the end of the recovery")
        killed.invalidate()
    engine.dispose()


def is_ended(connection: Connection) -> bool:
    try:
        connection.execute(text("SELECT 1"))
    except OperationalError:
        connection.invalidate()
        return True
    return False


def is_open(engine: Engine) -> bool:
    try:
        with engine.connect():
            return True
    except OperationalError:
        return False


def test_a_session_that_ends_within_a_transaction_has_done_nothing(
    behind_proxy: Index, empty_postgres_url: str
) -> None:
    owned = behind_proxy.take_over(1, reserve=1)
    change = added(*owned.reserved)
    engine = create_engine(empty_postgres_url)
    with engine.begin() as locker, ThreadPoolExecutor(1) as thread:
        locker.execute(text("SELECT epoch FROM s3_owners FOR UPDATE"))
        committing = thread.submit(behind_proxy.commit, owned.epoch, change)
        assert_blocked(committing)
        end_all_waiting(locker)

        with pytest.raises(IndexUnavailable) as caught:
            committing.result(WITHIN_S)
    engine.dispose()

    assert not isinstance(caught.value, OutcomeUnknown)
    assert not behind_proxy.committed(change)
    behind_proxy.commit(owned.epoch, change)
    assert live(behind_proxy) == owned.reserved


def end_all_waiting(connection: Connection) -> None:
    connection.execute(
        text(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE wait_event_type = 'Lock'"
        )
    )


def assert_blocked(future: "Future[Any]") -> None:
    with pytest.raises(FutureTimeoutError):
        future.result(BLOCKED_S)


def test_a_server_that_is_away_is_unavailable_until_it_is_back(
    empty_postgres_url: str, clock: ManualClock
) -> None:
    real = make_url(empty_postgres_url)
    assert real.host is not None
    assert real.port is not None
    proxy = CuttingProxy((real.host, real.port))
    index = Index(real.set(port=proxy.port).render_as_string(), clock=clock)
    index.open()
    owned = index.take_over(1, reserve=1)
    proxy.close()

    for _ in range(2):
        with pytest.raises(IndexUnavailable) as caught:
            index.commit(owned.epoch, added(*owned.reserved))
        assert "\n" not in str(caught.value)

    index.close()


# --- SQLite


@pytest.fixture
def sqlite_index(tmp_path: Path, clock: ManualClock) -> Iterator[Index]:
    index = Index(sql.engine_url("sqlite", tmp_path), clock=clock)
    index.open()
    yield index
    index.close()


@contextmanager
def locked_by_another_process(path: Path) -> Iterator["subprocess.Popen[str]"]:
    program = (
        "import sqlite3, sys\n"
        f"connection = sqlite3.connect({str(path)!r}, isolation_level=None)\n"
        "connection.execute('BEGIN IMMEDIATE')\n"
        "print('locked', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield process
        process.communicate(timeout=WITHIN_S)


def test_a_lock_of_another_process_is_waited_for(sqlite_index: Index, tmp_path: Path) -> None:
    owned = sqlite_index.take_over(1, reserve=1)

    with (
        locked_by_another_process(tmp_path / sql.FILE_NAME) as process,
        ThreadPoolExecutor(1) as thread,
    ):
        committing = thread.submit(sqlite_index.commit, owned.epoch, added(*owned.reserved))
        assert_blocked(committing)
        process.communicate(timeout=WITHIN_S)
        committing.result(WITHIN_S)

    assert live(sqlite_index) == owned.reserved


def test_a_lock_that_stays_makes_the_index_unavailable(
    monkeypatch: pytest.MonkeyPatch, sqlite_index: Index, tmp_path: Path
) -> None:
    monkeypatch.setattr(sql, "BUSY_TIMEOUT_MS", 300)
    sqlite_index.close()
    sqlite_index.open()  # with that
    owned = sqlite_index.take_over(1, reserve=1)
    change = added(*owned.reserved)

    with locked_by_another_process(tmp_path / sql.FILE_NAME):
        with pytest.raises(IndexUnavailable, match="locked") as caught:
            sqlite_index.commit(owned.epoch, change)
        assert sqlite_index.load().objects == []  # reading waits for nobody

    assert not isinstance(caught.value, OutcomeUnknown)
    sqlite_index.commit(owned.epoch, change)
    assert live(sqlite_index) == owned.reserved


def test_a_full_disk_at_commit_leaves_the_question_open_until_asked(
    sqlite_index: Index, tmp_path: Path
) -> None:
    owned = sqlite_index.take_over(1, reserve=1)
    change = added(*owned.reserved)
    wal = tmp_path / f"{sql.FILE_NAME}-wal"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (wal.stat().st_size, hard))
    try:
        with pytest.raises(OutcomeUnknown):
            sqlite_index.commit(owned.epoch, change)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert not sqlite_index.committed(change)
    sqlite_index.commit(owned.epoch, change)
    assert live(sqlite_index) == owned.reserved


def test_a_reader_sees_one_moment_while_a_writer_commits(open_index: OpenIndex) -> None:
    """Bounds are read after objects: a commit in between must not be seen by half."""
    index, reader = open_index(), open_index(create=False)
    owned = index.take_over(1, reserve=100)
    index.commit(owned.epoch, Change(bounds=(bounds(1, 0),)))

    def write() -> None:
        for at, number in enumerate(owned.reserved, start=1):
            whole = added(number)._replace(bounds=(bounds(1, at),))
            index.commit(owned.epoch, whole)

    with ThreadPoolExecutor(1) as thread:
        writing = thread.submit(write)
        while not writing.done():
            loaded = reader.load()
            assert loaded.bounds[0].start == len(loaded.objects)
        writing.result()
