"""``headgate pipeline archive`` as a user runs it, killed and run again."""

import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from tests.pipeline.archiving import (
    FORMATS,
    RUN_S_MAX,
    SETTINGS,
    archive,
    bad_rows,
    command,
    commits,
    is_whole,
    produce,
    rows,
    run,
)
from tests.support.gateway import Gateway
from tests.support.process import Program
from tests.support.sqs_peers import moto
from tests.support.toolchain import ROOT
from tests.support.topics import create_topic
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.java, pytest.mark.timeout(400), pytest.mark.xdist_group("spark")]

_KILLS = {"delta": 4, "iceberg": 3, "parquet": 3}
_KEYS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1"}


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    with Gateway(tmp_path / "data", SETTINGS) as running:
        yield running


@pytest.mark.parametrize("table_format", FORMATS)
def test_each_run_goes_on_where_the_table_is(
    gateway: Gateway, tmp_path: Path, table_format: str
) -> None:
    topic = create_topic(gateway.bootstrap, partitions=2)
    to = tmp_path / "lake"
    produce(gateway, topic, range(20_000))
    gateway.stop()  # all of it is synced then

    first = archive(gateway.data_dir, topic, to, "--format", table_format)
    gateway.restart()
    produce(gateway, topic, range(20_000, 21_000))
    gateway.stop()
    second = archive(gateway.data_dir, topic, to, "--format", table_format)
    third = archive(gateway.data_dir, topic, to, "--format", table_format)
    gateway.start()

    assert (first["rows"], second["rows"], third["rows"]) == (20_000, 1_000, 0)
    is_whole(rows(to, table_format), 21_000, 2)
    days = {path.parent.name.removeprefix("day=") for path in to.rglob("*.parquet")}
    assert days == {"2023-11-14", "2023-11-15", "2023-11-16"}


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_table_in_a_bucket(gateway: Gateway, tmp_path: Path, table_format: str) -> None:
    topic = create_topic(gateway.bootstrap)
    produce(gateway, topic, range(3_000))
    gateway.stop()
    with moto(tmp_path) as server:
        bucket = boto3.client(
            "s3",
            endpoint_url=server.url,
            region_name="us-east-1",
            aws_access_key_id="a",
            aws_secret_access_key="b",
        )
        bucket.create_bucket(Bucket="lake")
        env = {**_KEYS, "AWS_ENDPOINT_URL": server.url}
        options = ["--format", table_format]
        to = "s3://lake/raw/t"

        runs = [archive(gateway.data_dir, topic, to, *options, env=env) for _ in range(2)]

        nowhere = run(command(gateway.data_dir, topic, "s3://no-lake/t", *options), env=env)
        keys = [one["Key"] for one in bucket.list_objects_v2(Bucket="lake")["Contents"]]
    gateway.start()
    assert [one["rows"] for one in runs] == [3_000, 0]
    assert len([key for key in keys if key.endswith(".parquet")]) == runs[0]["files"]
    assert nowhere.returncode == 1
    assert re.fullmatch(r"headgate: s3://no-lake/t: [^\n]+\n", nowhere.stderr)


@pytest.mark.parametrize("table_format", FORMATS)
def test_killed_around_commits_every_row_is_there_once(
    gateway: Gateway, tmp_path: Path, table_format: str
) -> None:
    topic = create_topic(gateway.bootstrap, partitions=2)
    to = tmp_path / "lake"
    produce(gateway, topic, range(60_000))
    gateway.stop()
    options = ["--format", table_format, "--round-mib", "1"]
    chance = random.Random(20)
    seen = 0
    for _ in range(_KILLS[table_format]):
        program = Program(command(gateway.data_dir, topic, to, *options), cwd=ROOT)
        goal = seen + chance.randint(1, 3)
        wait_until(
            lambda: not program.is_running or commits(to, table_format) >= goal,  # noqa: B023 - within the turn
            within_s=RUN_S_MAX,
            what="a commit",
        )
        program.kill()
        seen = commits(to, table_format)

    found = archive(gateway.data_dir, topic, to, *options)
    gateway.start()

    assert found["rows"] < 60_000, "no killed run had committed anything"
    is_whole(rows(to, table_format), 60_000, 2)


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_batch_that_is_damaged_is_set_aside_and_stops_nothing(
    gateway: Gateway, tmp_path: Path, table_format: str
) -> None:
    topic = create_topic(gateway.bootstrap)
    to = tmp_path / "lake"
    produce(gateway, topic, range(30_000))
    gateway.stop()
    data = tmp_path / "copy"
    shutil.copytree(gateway.data_dir, data)
    largest = max(data.rglob("*.seg"), key=lambda path: path.stat().st_size)
    octets = bytearray(largest.read_bytes())
    octets[len(octets) // 2] ^= 0xFF
    largest.write_bytes(octets)

    found = archive(data, topic, to, "--format", table_format)
    again = archive(data, topic, to, "--format", table_format)
    gateway.start()

    assert found["bad_batches"] == 1
    assert again["rows"] == 0
    (bad,) = bad_rows(to, table_format)
    assert bad["topic"] == topic
    assert "CRC" in bad["reason"]
    missing = 30_000 - len(rows(to, table_format))
    assert missing > 0
    assert bad["octets"][57:61] == missing.to_bytes(4, "big")  # the batch's record count


def test_a_dry_run_makes_no_table(gateway: Gateway, tmp_path: Path) -> None:
    topic = create_topic(gateway.bootstrap)
    produce(gateway, topic, range(10))
    gateway.stop()

    found = archive(gateway.data_dir, topic, tmp_path / "lake", "--dry-run")
    gateway.start()

    assert found["records"] == 10
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--format", "csv"], "--format csv: there is delta, iceberg, parquet"),
        (["--topic", "no-such"], "no such topic in .*: no-such"),
        (["--catalog", "sqlite:///x"], "--catalog is Iceberg's"),
        (["--to", "ftp://host/lake"], "'ftp://host/lake' is neither a folder nor"),
        (["--format", "iceberg", "--catalog", "nonsense"], "catalog"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    gateway: Gateway, tmp_path: Path, arguments: list[str], said: str
) -> None:
    topic = create_topic(gateway.bootstrap)

    done = run(command(gateway.data_dir, topic, tmp_path / "lake", *arguments))

    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert re.search(said, done.stderr)
