"""``headgate pipeline archive`` as a user runs it, killed and run again."""

import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import boto3
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable

from pipeline.delta_lake import BAD_SUFFIX, DeltaLake, Overtaken
from pipeline.local_log import read_view
from tests.support.gateway import Gateway
from tests.support.process import Program
from tests.support.sqs_peers import moto
from tests.support.toolchain import ROOT
from tests.support.topics import create_topic
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("spark")]

_SETTINGS = {
    "storage.reserve_bytes": 1 << 17,
    "storage.segment_bytes": 1 << 20,
    "storage.settle_after_bytes": 2 << 20,
    "storage.settle_after_ms": 500,
}
_RUN_S_MAX = 120
_KILLS = 3


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    with Gateway(tmp_path / "data", _SETTINGS) as running:
        yield running


def _produce(gateway: Gateway, topic: str, numbers: range) -> None:
    failed: list[object] = []
    producer = Producer(
        {"bootstrap.servers": gateway.bootstrap, "linger.ms": 5, "batch.size": 100_000},
    )
    for number in numbers:
        day_ms = number % 3 * 86_400_000
        value = f"{number:08d}".encode().ljust(300, b".")
        producer.produce(
            topic,
            value,
            timestamp=1_700_000_000_000 + day_ms,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(60) == 0
    assert not failed


def _command(data_dir: Path, topic: str, to: Path | str, *more: str) -> list[str]:
    return [
        sys.executable, "-m", "gateway", "pipeline", "archive", "--topic", topic,
        "--to", str(to), "--master", "local[2]", f"--set=node.data_dir={data_dir}", *more,
    ]  # fmt: skip


def _archive(
    data_dir: Path, topic: str, to: Path | str, *more: str, env: Mapping[str, str] | None = None
) -> dict[str, int]:
    done = subprocess.run(
        _command(data_dir, topic, to, "--json", *more),
        cwd=ROOT,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=_RUN_S_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    return found


def _rows(to: Path) -> list[tuple[int, int, int]]:
    table = DeltaTable(to).to_pyarrow_table(columns=["partition", "offset", "value"])
    return sorted(
        (row["partition"], row["offset"], int(row["value"][:8])) for row in table.to_pylist()
    )


def _is_whole(rows: list[tuple[int, int, int]], count: int, partitions: int) -> None:
    assert sorted(number for _, _, number in rows) == list(range(count))
    for partition in range(partitions):
        offsets = [offset for number, offset, _ in rows if number == partition]
        assert offsets == list(range(len(offsets)))


def test_each_run_goes_on_where_the_table_is(gateway: Gateway, tmp_path: Path) -> None:
    topic = create_topic(gateway.bootstrap, partitions=2)
    to = tmp_path / "lake"
    _produce(gateway, topic, range(20_000))
    gateway.stop()  # all of it is synced then

    first = _archive(gateway.data_dir, topic, to)
    gateway.restart()
    _produce(gateway, topic, range(20_000, 21_000))
    gateway.stop()
    second = _archive(gateway.data_dir, topic, to)
    third = _archive(gateway.data_dir, topic, to)
    gateway.start()

    assert (first["rows"], second["rows"], third["rows"]) == (20_000, 1_000, 0)
    _is_whole(_rows(to), 21_000, 2)
    days = {path.parent.name for path in to.rglob("*.parquet")}
    assert days == {"day=2023-11-14", "day=2023-11-15", "day=2023-11-16"}


def test_a_table_in_a_bucket(gateway: Gateway, tmp_path: Path) -> None:
    topic = create_topic(gateway.bootstrap)
    _produce(gateway, topic, range(3_000))
    gateway.stop()
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1"}
    with moto(tmp_path) as server:
        boto3.client(
            "s3",
            endpoint_url=server.url,
            region_name="us-east-1",
            aws_access_key_id="a",
            aws_secret_access_key="b",
        ).create_bucket(Bucket="lake")
        env = {**keys, "AWS_ENDPOINT_URL": server.url}

        runs = [_archive(gateway.data_dir, topic, "s3://lake/t", env=env) for _ in range(2)]

        table = DeltaTable(
            "s3://lake/t",
            storage_options={**keys, "AWS_ENDPOINT_URL": server.url, "aws_allow_http": "true"},
        )
        counts = table.get_add_actions(flatten=True)["num_records"].to_pylist()
    gateway.start()
    assert [one["rows"] for one in runs] == [3_000, 0]
    assert sum(counts) == 3_000


def test_killed_around_commits_every_row_is_there_once(
    gateway: Gateway, tmp_path: Path
) -> None:
    topic = create_topic(gateway.bootstrap, partitions=2)
    to = tmp_path / "lake"
    _produce(gateway, topic, range(60_000))
    gateway.stop()
    chance = random.Random(20)
    seen = 0
    for _ in range(_KILLS):
        program = Program(_command(gateway.data_dir, topic, to, "--round-mib", "1"), cwd=ROOT)
        goal = seen + chance.randint(1, 3)
        wait_until(
            lambda: not program.is_running or _versions(to) > goal,  # noqa: B023 - within the turn
            within_s=_RUN_S_MAX,
            what="a commit",
        )
        program.kill()
        seen = _versions(to)

    found = _archive(gateway.data_dir, topic, to, "--round-mib", "1")
    gateway.start()

    assert found["rows"] < 60_000, "no killed run had committed anything"
    _is_whole(_rows(to), 60_000, 2)


def _versions(to: Path) -> int:
    return len(list((to / "_delta_log").glob("*.json")))


def test_a_batch_that_is_damaged_is_set_aside_and_stops_nothing(
    gateway: Gateway, tmp_path: Path
) -> None:
    topic = create_topic(gateway.bootstrap)
    to = tmp_path / "lake"
    _produce(gateway, topic, range(30_000))
    gateway.stop()
    data = tmp_path / "copy"
    shutil.copytree(gateway.data_dir, data)
    largest = max(data.rglob("*.seg"), key=lambda path: path.stat().st_size)
    octets = bytearray(largest.read_bytes())
    octets[len(octets) // 2] ^= 0xFF
    largest.write_bytes(octets)

    found = _archive(data, topic, to)
    again = _archive(data, topic, to)
    gateway.start()

    assert found["bad_batches"] == 1
    assert again["rows"] == 0
    bad = DeltaTable(f"{to}{BAD_SUFFIX}").to_pyarrow_table().to_pylist()
    assert [row["topic"] for row in bad] == [topic]
    assert "CRC" in bad[0]["reason"]
    missing = 30_000 - len(_rows(to))
    assert missing > 0
    assert bad[0]["octets"][57:61] == missing.to_bytes(4, "big")  # the batch's record count


def test_of_two_archives_with_one_id_only_one_gets_on(gateway: Gateway, tmp_path: Path) -> None:
    _produce(gateway, create_topic(gateway.bootstrap), range(10))
    gateway.stop()
    (view,) = [
        one
        for one in read_view(gateway.data_dir).values()
        if not one.identity.topic.name.startswith("__")
    ]
    gateway.start()
    ours, theirs = (DeltaLake(str(tmp_path / "lake"), "nightly") for _ in range(2))
    theirs.commit([], {view.identity: 10})

    with pytest.raises(Overtaken, match="another archive with the id 'nightly'"):
        ours.commit([], {view.identity: 5})

    assert DeltaLake(str(tmp_path / "lake"), "nightly").position(view.identity) == 10


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--format", "csv"], "--format csv: there is delta"),
        (["--topic", "no-such"], "no such topic in .*: no-such"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    gateway: Gateway, tmp_path: Path, arguments: list[str], said: str
) -> None:
    topic = create_topic(gateway.bootstrap)
    command = _command(gateway.data_dir, topic, tmp_path / "lake", *arguments)

    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=_RUN_S_MAX, check=False
    )

    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert re.search(said, done.stderr)
