"""``headgate recover-metadata`` when nothing is left but the bucket."""

import io
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaProducer

from gateway.testing.process import ProgramFailed
from tests.cli.conftest import Run
from tests.support.gateway import Gateway
from tests.support.kafka_wire import METADATA, Connection
from tests.support.s3_servers import S3Server, moto

pytestmark = pytest.mark.xdist_group("recover-s3")  # they share a server

ALL_TOPICS = b"\xff\xff\xff\xff"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with moto(tmp_path_factory.mktemp("moto")) as running:
        yield running


@pytest.fixture(autouse=True)
def _credentials(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in server.env.items():
        monkeypatch.setenv(name, value)


def _produce(gateway: Gateway, topic: str, count: int) -> None:
    producer = KafkaProducer(bootstrap_servers=gateway.bootstrap)
    for future in [producer.send(topic, b"x") for _ in range(count)]:
        future.get(30)
    producer.close()


def test_a_lost_machine_comes_back_from_the_bucket(
    run: Run, tmp_path: Path, server: S3Server
) -> None:
    settings = {
        **server.settings(prefix="lost/"),
        "storage.flush_interval_ms": 5,
        "storage.merge_objects_min": 4,
    }
    old, new = tmp_path / "old", tmp_path / "new"
    gateway = Gateway(old, settings, env=server.env)
    where = ["--set", f"node.data_dir={old}"]
    with gateway:
        assert run("topics", "create", "orders", "-p", "2", *where).status == 0
        assert run("queues", "create", "work", *where).status == 0
        for _ in range(5):
            _produce(gateway, "orders", 4)
        moved = run("groups", "reset", "billing", "--topic", "orders", "--to", "latest", *where)
        assert moved.status == 0
        before = run("topics", "describe", "orders", "--json", *where).json
        gateway.kill()
    shutil.rmtree(old)
    another = Gateway(new, settings, env=server.env)
    with pytest.raises(ProgramFailed, match="recover-metadata"):
        another.start()
    shutil.rmtree(new, ignore_errors=True)

    where = [f"--set={key}={value}" for key, value in another.settings.items()]
    done = run("recover-metadata", "--yes", *where)

    assert done.status == 0, done.err
    assert re.search(r"default +orders +2 ", done.out)
    assert "objects are in the index again" in done.out
    where = ["--set", f"node.data_dir={new}"]
    with another:
        after = run("topics", "describe", "orders", "--json", *where).json
        assert (after["uuid"], after["partitions"]) == (before["uuid"], before["partitions"])
        positions = run("groups", "offsets", "billing", "--json", *where).json
        assert sum(position["offset"] for position in positions) == 20
        _produce(another, "orders", 1)


def test_a_node_with_users_stays_closed(
    run: Run, tmp_path: Path, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**server.settings(prefix="closed/"), "storage.flush_interval_ms": 5}
    old, new = tmp_path / "old", tmp_path / "new"
    where = ["--set", f"node.data_dir={old}"]
    with Gateway(old, settings, env=server.env) as gateway:
        assert run("topics", "create", "orders", *where).status == 0
        _produce(gateway, "orders", 1)
        monkeypatch.setattr("sys.stdin", io.StringIO("sesame\n"))
        added = run("users", "add", "ada", "--password-stdin", *where)
        assert added.status == 0, added.err
        gateway.kill()
    shutil.rmtree(old)
    another = Gateway(new, settings, env=server.env)

    done = run(
        "recover-metadata",
        "--yes",
        *[f"--set={key}={value}" for key, value in another.settings.items()],
    )

    assert done.status == 0, done.err
    assert "everybody must log in (auth.required), and the users are lost" in done.err
    with (
        another,
        Connection(another.kafka_port) as connection,
        pytest.raises(
            (OSError, AssertionError)
        ),  # closed: a client without a login is not served
    ):
        connection.call(METADATA, 1, ALL_TOPICS)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("storage.prefix=nothing/", "holds no data under the prefix 'nothing/'"),
        ("storage.bucket=not-there", "not-there"),
    ],
)
def test_without_data_nothing_is_made(
    run: Run, tmp_path: Path, server: S3Server, setting: str, words: str
) -> None:
    where = [f"--set={key}={value}" for key, value in server.settings().items()]
    data_dir = tmp_path / "data"
    done = run(
        "recover-metadata", *where, f"--set={setting}", f"--set=node.data_dir={data_dir}"
    )
    assert done.status == 1
    assert words in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert not data_dir.exists()
