"""Two gateways on one bucket and one database: the younger goes on, the older stops and says so."""

import os
import signal
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from tests.crash.load import Load, check_dense, check_kept, check_once, read_all
from tests.crash.s3_gateways import abandon, lose_disk, s3_settings
from tests.support.gateway import Gateway
from tests.support.s3_proxy import Hang, S3Proxy
from tests.support.s3_servers import S3Server
from tests.support.topics import create_topic
from tests.support.waiting import wait_until

PARTITIONS = 3
TAKE_OVERS = 4
PROGRESS_S_MAX = 180
# The bucket is always there: a server that is slow on a busy machine is no outage.
PATIENCE = {
    "storage.connect_timeout_ms": 20_000,
    "storage.request_timeout_ms": 20_000,
    "storage.retry_ms_max": 20_000,
}

pytestmark = pytest.mark.crash


def _settings(server: S3Server, metadata_url: str) -> dict[str, object]:
    return {**s3_settings(server, server.bucket, metadata_url=metadata_url), **PATIENCE}


def _has(load: Load, count: int) -> bool:
    return len(load.acknowledged) >= count


def _wait_for_more(load: Load) -> None:
    goal = len(load.acknowledged) + 300
    wait_until(partial(_has, load, goal), within_s=PROGRESS_S_MAX, what="acknowledgements")


def test_the_older_of_two_stops_and_what_either_acknowledged_is_there(
    server: S3Server, metadata_url: str, tmp_path: Path
) -> None:
    settings = _settings(server, metadata_url)
    with ExitStack() as stack:
        older = stack.enter_context(Gateway(tmp_path / "0/data", settings))
        _take_over_often(stack, older, tmp_path, settings)


def _take_over_often(
    stack: ExitStack, older: Gateway, folder: Path, settings: dict[str, object]
) -> None:
    topic = create_topic(older.bootstrap, partitions=PARTITIONS)
    loads: list[Load] = []
    for number in range(TAKE_OVERS + 1):
        load = Load(
            older.bootstrap, topic, partitions=PARTITIONS, idempotent=True, name=f"l{number}"
        )
        load.start()
        loads.append(load)
        _wait_for_more(load)
        if number == TAKE_OVERS:
            break

        younger = stack.enter_context(Gateway(folder / f"{number + 1}/data", settings))

        program = older.program
        assert program is not None
        assert program.ended(within_s=60) != 0
        said = [line for line in older.lines if "has taken over this data" in line]
        assert said, program.tail()
        assert not any("Traceback" in line for line in older.lines), program.tail()
        older.kill()  # it has ended: what is left of it goes
        abandon(load)
        older = younger

    loads[-1].finish()
    stored = read_all(older.bootstrap, topic, PARTITIONS)
    check_dense(stored, PARTITIONS)
    for load in loads:
        check_kept(load, stored)
    check_once(loads[-1], stored)


def _live(metadata_url: str, epoch: int) -> set[int]:
    """Return the numbers of an owner's objects that count."""
    engine = create_engine(metadata_url)
    with engine.connect() as connection:
        query = text("SELECT number FROM s3_objects WHERE state = 1 AND epoch = :epoch")
        found = set(connection.scalars(query, {"epoch": epoch}))
    engine.dispose()
    return found


def test_what_was_on_its_way_when_another_took_over_does_not_count(
    server: S3Server, metadata_url: str, tmp_path: Path
) -> None:
    """The owner sleeps with a PUT under way, and does it when it wakes; its commit is refused.

    Nothing but the commit can refuse it: it has nothing to sweep.
    """
    with ExitStack() as stack:
        proxy = stack.enter_context(S3Proxy(server.endpoint_url))
        settings = _settings(server, metadata_url)
        own = {"storage.endpoint_url": proxy.url, "storage.sweep_interval_ms": 600_000}
        older = stack.enter_context(Gateway(tmp_path / "0/data", {**settings, **own}))
        topic = create_topic(older.bootstrap, partitions=PARTITIONS)
        slept = Load(
            older.bootstrap, topic, partitions=PARTITIONS, idempotent=True, name="slept"
        )
        slept.start()
        _wait_for_more(slept)
        rule = proxy.add(Hang(), method="PUT", key=".seg")
        wait_until(lambda: rule.hits > 0, within_s=PROGRESS_S_MAX, what="a PUT under way")
        os.kill(older.pid, signal.SIGSTOP)
        younger = stack.enter_context(Gateway(tmp_path / "1/data", settings))
        next_one = Load(
            younger.bootstrap, topic, partitions=PARTITIONS, idempotent=True, name="next"
        )
        next_one.start()
        _wait_for_more(next_one)
        counted = _live(metadata_url, epoch=1)

        rule.off()
        os.kill(older.pid, signal.SIGCONT)

        program = older.program
        assert program is not None
        assert program.ended(within_s=60) != 0
        assert [line for line in older.lines if "has taken over this data" in line]
        assert _live(metadata_url, epoch=1) <= counted
        older.kill()  # it has ended: what is left of it goes
        abandon(slept)
        _wait_for_more(next_one)
        next_one.finish()
        younger.kill()
        lose_disk(younger, keeps_database=False)
        younger.restart()  # it knows what the index says, and nothing else
        stored = read_all(younger.bootstrap, topic, PARTITIONS)
        check_dense(stored, PARTITIONS)
        check_kept(slept, stored)
        check_kept(next_one, stored)
        check_once(next_one, stored)
