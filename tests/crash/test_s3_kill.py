"""The machine dies under load and another one starts: what was acknowledged is in the bucket.

After each kill the disk is gone. The index is in PostgreSQL, or in SQLite's file, which is kept.
"""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.crash.kill_schedule import how_often, moments
from tests.crash.load import (
    GroupReader,
    Load,
    check_commits,
    check_dense,
    check_kept,
    check_once,
    count_of,
    read_all,
)
from tests.crash.s3_gateways import lose_disk, new_database, s3_settings
from tests.support.gateway import Gateway
from tests.support.s3_servers import S3Server, versitygw
from tests.support.topics import create_topic

PARTITIONS = 3
ACKS_BETWEEN_KILLS_MAX = 1_000

pytestmark = pytest.mark.crash


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with versitygw(tmp_path_factory.mktemp("s3")) as run, patch.dict(os.environ, run.env):
        yield run


@pytest.fixture(params=["postgres", "sqlite"])
def metadata_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database that outlives the machine; empty for SQLite's file."""
    if request.param == "sqlite":
        yield ""
        return
    url: str = request.getfixturevalue("postgres_url")
    with new_database(url, f"d{uuid.uuid4().hex}") as found:
        yield found


@how_often(6, 100)
def test_acknowledged_records_survive_machines(
    server: S3Server, metadata_url: str, tmp_path: Path, kills: int
) -> None:
    settings = s3_settings(server, server.new_bucket(), metadata_url=metadata_url)
    with Gateway(tmp_path / "data", settings) as gateway:
        topic = create_topic(gateway.bootstrap, partitions=PARTITIONS)
        loads = [
            Load(gateway.bootstrap, topic, partitions=PARTITIONS, idempotent=True, name=name)
            for name in ("one", "other")
        ]
        reader = GroupReader(gateway.bootstrap, topic, "resumes")
        parts: list[Load | GroupReader] = [*loads, reader]
        for part in parts:
            part.start()

        acknowledged = count_of(*loads)
        for moment in moments(kills, acknowledged, apart_max=ACKS_BETWEEN_KILLS_MAX):
            gateway.kill()
            promised = dict(reader.committed)
            lose_disk(gateway, keeps_database=not metadata_url)
            gateway.restart()
            check_commits(gateway.bootstrap, topic, "resumes", promised, moment)
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
