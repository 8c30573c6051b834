"""A database that takes bytes and says nothing: each wait has an end, and the truth is looked up.

Nothing is closed and every byte is acknowledged, so that neither TCP nor the driver finds out.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest
from sqlalchemy import create_engine, make_url, text

from gateway.clock import ManualClock
from gateway.sql import engines as sql
from storage_adapters.s3.index import Index, IndexUnavailable, OutcomeUnknown
from tests.storage_adapters.s3.index.changes import added, live
from tests.storage_adapters.s3.index.cutting_proxy import Cut, CuttingProxy, proxied
from tests.support.waiting import wait_until

MS_MAX = 2_000  # more than a statement ever takes on a busy machine
WITHIN_S = 60

_T = TypeVar("_T")


@pytest.fixture
def proxy(empty_postgres_url: str) -> Iterator[CuttingProxy]:
    url = make_url(empty_postgres_url)
    assert url.host is not None
    assert url.port is not None
    with proxied(url.host, url.port) as proxy:
        yield proxy


@pytest.fixture
def index(
    empty_postgres_url: str,
    proxy: CuttingProxy,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Index]:
    """Open one behind the proxy, whose server soon ends what a silent client leaves open."""
    monkeypatch.setattr(sql, "SILENT_TRANSACTION_MS_MAX", 2_000)
    maker = Index(empty_postgres_url, clock=clock)
    maker.open()  # makes the tables, which may take longer
    maker.close()
    url = make_url(empty_postgres_url).set(port=proxy.port)
    url = url.update_query_dict({"connect_timeout": "2"})
    index = Index(url.render_as_string(hide_password=False), clock=clock, ms_max=MS_MAX)
    index.open()
    yield index
    proxy.is_passing.set()
    index.close()


def soon(work: Callable[[], _T], proxy: CuttingProxy) -> _T:
    """Return what ``work`` returns or raises; that it never ends is an error."""
    with ThreadPoolExecutor(1) as thread:
        try:
            return thread.submit(work).result(WITHIN_S)
        finally:
            proxy.is_passing.set()


@pytest.mark.parametrize("cut", [Cut.SILENT_BEFORE, Cut.SILENT_AFTER])
def test_a_commit_without_an_answer_is_unknown_and_then_looked_up(
    index: Index, proxy: CuttingProxy, cut: Cut
) -> None:
    owned = index.take_over(1, reserve=1)
    change = added(*owned.reserved)
    proxy.cut = cut

    with pytest.raises(OutcomeUnknown, match="no answer within 2000 ms"):
        soon(lambda: index.commit(owned.epoch, change), proxy)

    told: list[bool] = []

    def is_told() -> bool:
        try:
            told.append(index.committed(change))
        except IndexUnavailable:  # the server has not ended the transaction yet
            return False
        return True

    wait_until(is_told, within_s=WITHIN_S, what="an answer")
    assert told == [bool(live(index))]
    assert told == [True] or cut is Cut.SILENT_BEFORE


def test_a_statement_without_an_answer_ends(index: Index, proxy: CuttingProxy) -> None:
    owned = index.take_over(1, reserve=1)
    index.commit(owned.epoch, added(*owned.reserved))
    proxy.is_passing.clear()

    with pytest.raises(IndexUnavailable, match="no answer within 2000 ms") as caught:
        soon(lambda: index.rows(owned.reserved[0]), proxy)

    assert not isinstance(caught.value, OutcomeUnknown)
    assert index.rows(owned.reserved[0]) is not None  # over a new connection


def test_a_database_that_hangs_is_not_connected_to_for_ever(
    index: Index, proxy: CuttingProxy
) -> None:
    index.close()
    proxy.is_passing.clear()

    with pytest.raises(IndexUnavailable):
        soon(index.open, proxy)

    index.open()
    assert live(index) == []


def test_the_server_ends_a_statement_by_itself(
    index: Index, empty_postgres_url: str, proxy: CuttingProxy
) -> None:
    """Otherwise it would go on, with its locks, for a client that was cut off."""
    endless = text("SELECT pg_sleep(3600)")

    with pytest.raises(IndexUnavailable):
        soon(lambda: index._read(lambda connection: connection.scalar(endless)), proxy)

    count = text(
        "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE :query"
    )
    engine = create_engine(empty_postgres_url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        wait_until(
            lambda: connection.scalar(count, {"query": "SELECT pg_sleep%"}) == 0,
            within_s=WITHIN_S,
            what="the statement's end",
        )
    engine.dispose()


def test_what_is_cut_ends_at_once_and_nothing_begins_any_more(
    index: Index, proxy: CuttingProxy
) -> None:
    index.close()
    index = Index(index._url, clock=index._clock, ms_max=600_000)
    index.open()
    owned = index.take_over(1, reserve=1)
    proxy.cut = Cut.SILENT_BEFORE
    with ThreadPoolExecutor(1) as thread:
        committing = thread.submit(index.commit, owned.epoch, added(*owned.reserved))
        wait_until(lambda: not proxy.is_passing.is_set(), within_s=WITHIN_S, what="COMMIT")

        index.cut()

        try:
            with pytest.raises(OutcomeUnknown):
                committing.result(WITHIN_S)
        finally:
            proxy.is_passing.set()
    with pytest.raises(IndexUnavailable):
        index.load()
    index.close()


def test_a_statement_of_sqlite_that_takes_too_long_ends(
    tmp_path_factory: pytest.TempPathFactory, clock: ManualClock
) -> None:
    url = sql.engine_url("sqlite", tmp_path_factory.mktemp("sqlite"))
    index = Index(url, clock=clock, ms_max=MS_MAX)
    index.open()
    endless = text(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT sum(i) FROM n"
    )

    with pytest.raises(IndexUnavailable, match="no answer within 2000 ms"):
        index._read(lambda connection: connection.scalar(endless))

    assert live(index) == []
    index.close()
