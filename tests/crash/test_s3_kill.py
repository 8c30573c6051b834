"""The machine dies under load and another one starts: what was acknowledged is in the bucket.

After each kill the disk is gone. The index is in PostgreSQL, or in SQLite's file, which is kept.
"""

import random
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.crash.load import (
    GroupReader,
    Load,
    check_dense,
    check_kept,
    check_once,
    committed,
    count_of,
    read_all,
)
from tests.crash.s3_rig import lose_disk, new_database, s3_settings
from tests.gateway import postgres
from tests.support.gateway import Gateway
from tests.support.s3_servers import S3Server, versitygw
from tests.support.topics import create_topic
from tests.support.waiting import wait_until

PARTITIONS = 3
KILLS = 15  # of each of the two indexes
KILLS_SOAK = 100
ACKS_BETWEEN_KILLS_MAX = 1_000
PROGRESS_S_MAX = 60

pytestmark = pytest.mark.crash


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with pytest.MonkeyPatch.context() as patch, versitygw(tmp_path_factory.mktemp("s3")) as run:
        for name, value in run.env.items():
            patch.setenv(name, value)
        yield run


@pytest.fixture(scope="module")
def postgres_url() -> Iterator[str]:
    reason = postgres.missing()
    if reason is not None:
        pytest.skip(reason)
    with postgres.running_postgres() as url:
        yield url


@pytest.fixture(params=["postgres", "sqlite"])
def metadata_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database that outlives the machine; empty for SQLite's file."""
    if request.param == "sqlite":
        yield ""
        return
    url: str = request.getfixturevalue("postgres_url")
    with new_database(url, f"d{uuid.uuid4().hex}") as found:
        yield found


@pytest.mark.timeout(600)
def test_acknowledged_records_survive_machines(
    server: S3Server, metadata_url: str, tmp_path: Path
) -> None:
    _kill_often(server, metadata_url, tmp_path, kills=KILLS)


@pytest.mark.soak
@pytest.mark.timeout(3_600)
def test_acknowledged_records_survive_a_hundred_machines(
    server: S3Server, metadata_url: str, tmp_path: Path
) -> None:
    _kill_often(server, metadata_url, tmp_path, kills=KILLS_SOAK)


def _kill_often(server: S3Server, metadata_url: str, folder: Path, *, kills: int) -> None:
    settings = s3_settings(server, server.new_bucket(), metadata_url=metadata_url)
    with Gateway(folder / "data", settings) as gateway:
        topic = create_topic(gateway.bootstrap, partitions=PARTITIONS)
        loads = [
            Load(gateway.bootstrap, topic, partitions=PARTITIONS, idempotent=True, name=name)
            for name in ("one", "other")
        ]
        reader = GroupReader(gateway.bootstrap, topic, "resumes")
        parts: list[Load | GroupReader] = [*loads, reader]
        for part in parts:
            part.start()

        _kill_under_load(gateway, topic, loads, reader, kills=kills, on_sqlite=not metadata_url)
        for part in parts:
            part.finish()
        gateway.kill()
        lose_disk(gateway, keeps_database=not metadata_url)
        gateway.restart()

        stored = read_all(gateway.bootstrap, topic, PARTITIONS)
        check_dense(stored, PARTITIONS)
        for load in loads:
            check_kept(load, stored)
            check_once(load, stored)


def _is_at(load: list[Load], target: int) -> bool:
    return count_of(*load)() >= target


def _kill_under_load(
    gateway: Gateway,
    topic: str,
    loads: list[Load],
    reader: GroupReader,
    *,
    kills: int,
    on_sqlite: bool,
) -> None:
    chooser = random.SystemRandom()
    for kill in range(kills):
        target = count_of(*loads)() + chooser.randrange(1, ACKS_BETWEEN_KILLS_MAX)
        what = f"records are acknowledged before kill {kill + 1} of {kills}"
        wait_until(partial(_is_at, loads, target), within_s=PROGRESS_S_MAX, what=what)
        gateway.kill()
        promised = dict(reader.committed)
        lose_disk(gateway, keeps_database=on_sqlite)
        gateway.restart()
        kept = committed(gateway.bootstrap, topic, "resumes", PARTITIONS)
        lost = {n: at for n, at in promised.items() if kept.get(n, -1) < at}
        assert not lost, f"kill {kill + 1}: commits {lost} are gone, {kept} are there"
