"""``headgate pipeline archive`` as a user runs it, killed and run again."""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from gateway.testing.process import Program
from pipeline.lake.files import DATA_COLUMN
from tests.pipeline.archive.archives import (
    FORMATS,
    SETTINGS,
    archive,
    bad_rows,
    commits,
    is_whole,
    options,
    produce,
    rows,
)
from tests.pipeline.running import Jobs, kill_when, start_alone
from tests.support.gateway import Gateway
from tests.support.s3_servers import REGION, S3Server
from tests.support.topics import create_topic, fresh_name

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("spark")]

_LOGGED = 80_000

Start = Callable[..., Program]


class _Log(NamedTuple):
    """A topic of two partitions in the data of a node that has stopped."""

    data_dir: Path
    topic: str


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("node") / "data", SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> _Log:
    data_dir = tmp_path_factory.mktemp("log") / "data"
    with Gateway(data_dir, SETTINGS) as running:
        topic = create_topic(running.bootstrap, partitions=2)
        produce(running, topic, range(_LOGGED))
        running.stop()
    return _Log(data_dir, topic)


@pytest.mark.parametrize("table_format", FORMATS)
def test_each_run_goes_on_where_the_table_is(
    jobs: Jobs, gateway: Gateway, tmp_path: Path, table_format: str
) -> None:
    topic = create_topic(gateway.bootstrap, partitions=2)
    to = tmp_path / "lake"
    run = partial(archive, jobs, gateway.data_dir, topic, to, "--format", table_format)
    produce(gateway, topic, range(20_000))

    first = run()
    produce(gateway, topic, range(20_000, 21_000))
    second = run()
    third = run()

    assert (first["rows"], second["rows"], third["rows"]) == (20_000, 1_000, 0)
    is_whole(rows(to, table_format), 21_000, 2)
    days = {path.parent.name.removeprefix("day=") for path in to.rglob("*.parquet")}
    assert days == {"2023-11-14", "2023-11-15", "2023-11-16"}


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_table_in_a_bucket(
    jobs: Jobs, gateway: Gateway, s3: S3Server, table_format: str
) -> None:
    topic = create_topic(gateway.bootstrap)
    produce(gateway, topic, range(3_000))
    bucket, missing = s3.new_bucket(), fresh_name("no-lake")
    env = {"AWS_ENDPOINT_URL": s3.endpoint_url, "AWS_REGION": REGION}
    more = ["--format", table_format]
    to = f"s3://{bucket}/raw/t"

    runs = [archive(jobs, gateway.data_dir, topic, to, *more, env=env) for _ in range(2)]

    nowhere = jobs.run(
        "archive", *options(gateway.data_dir, topic, f"s3://{missing}/t", *more), env=env
    )
    with closing(s3.client()) as client:
        keys = [one["Key"] for one in client.list_objects_v2(Bucket=bucket)["Contents"]]
    assert [one["rows"] for one in runs] == [3_000, 0]
    assert len([key for key in keys if key.endswith(".parquet")]) == runs[0]["files"]
    assert nowhere.status == 1
    assert re.fullmatch(rf"headgate: s3://{missing}/t: [^\n]+\n", nowhere.err)


@pytest.mark.parametrize(
    ("table_format", "kills"),
    [
        ("delta", 3),
        ("iceberg", 2),
        ("parquet", 2),
        pytest.param("delta", 9, marks=pytest.mark.soak),
    ],
)
def test_killed_around_commits_every_row_is_there_once(
    jobs: Jobs, log: _Log, tmp_path: Path, table_format: str, kills: int
) -> None:
    # Of Delta the first one takes its JVM along.
    starts: list[Start] = [start_alone] if table_format == "delta" else []

    _kill(jobs, log, tmp_path / "lake", table_format, [*starts, *[jobs.start] * kills])


@pytest.mark.soak
@pytest.mark.parametrize("table_format", FORMATS)
def test_killed_with_its_java_ten_times_every_row_is_there_once(
    jobs: Jobs, log: _Log, tmp_path: Path, table_format: str
) -> None:
    _kill(jobs, log, tmp_path / "lake", table_format, [start_alone] * 10)


def _kill(jobs: Jobs, log: _Log, to: Path, table_format: str, starts: Sequence[Start]) -> None:
    """Kill a run after one or two commits of its own, as often as there are ``starts``."""
    more = ["--format", table_format, "--round-mib", "1"]
    chance = random.Random(20)
    seen = 0
    for start in starts:
        program = start("archive", *options(*log, to, *more))
        goal = seen + chance.randint(1, 2)
        kill_when(
            program,
            lambda: commits(to, table_format) >= goal,  # noqa: B023 - within the turn
            what="a commit",
        )
        jobs.stop_tasks()
        seen = commits(to, table_format)

    found = archive(jobs, *log, to, *more)

    assert 0 < found["rows"] < _LOGGED
    is_whole(rows(to, table_format), _LOGGED, 2)


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> _Log:
    """A log of which a byte has changed."""
    data_dir = tmp_path_factory.mktemp("damaged") / "data"
    with Gateway(data_dir, SETTINGS) as running:
        topic = create_topic(running.bootstrap)
        produce(running, topic, range(30_000))
        running.stop()
    largest = max(data_dir.rglob("*.seg"), key=lambda path: path.stat().st_size)
    data = bytearray(largest.read_bytes())
    data[len(data) // 2] ^= 0xFF
    largest.write_bytes(data)
    return _Log(data_dir, topic)


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_batch_that_is_damaged_is_set_aside_and_stops_nothing(
    jobs: Jobs, damaged: _Log, tmp_path: Path, table_format: str
) -> None:
    to = tmp_path / "lake"

    found = archive(jobs, *damaged, to, "--format", table_format)
    again = archive(jobs, *damaged, to, "--format", table_format)

    assert found["bad_batches"] == 1
    assert again["rows"] == 0
    (bad,) = bad_rows(to, table_format)
    assert bad["topic"] == damaged.topic
    assert "CRC" in bad["reason"]
    missing = 30_000 - len(rows(to, table_format))
    assert missing > 0
    assert bad[DATA_COLUMN][57:61] == missing.to_bytes(4, "big")  # the batch's record count


def test_a_dry_run_makes_no_table(jobs: Jobs, gateway: Gateway, tmp_path: Path) -> None:
    topic = create_topic(gateway.bootstrap)
    produce(gateway, topic, range(10))

    found = archive(jobs, gateway.data_dir, topic, tmp_path / "lake", "--dry-run")

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
    jobs: Jobs, gateway: Gateway, tmp_path: Path, arguments: list[str], said: str
) -> None:
    topic = create_topic(gateway.bootstrap)

    done = jobs.run("archive", *options(gateway.data_dir, topic, tmp_path / "lake", *arguments))

    assert done.status == 1
    assert len(done.err.splitlines()) == 1
    assert re.search(said, done.err)
