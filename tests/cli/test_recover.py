"""``headgate recover-metadata``: a node whose metadata store was lost comes back."""

import io
import re
from pathlib import Path

import pytest
from kafka import KafkaProducer

from gateway.metadata.sql import FILE_NAME
from gateway.testing.process import ProgramFailed
from tests.cli.conftest import Run
from tests.support.gateway import Gateway
from tests.support.kafka_wire import METADATA, Connection

ALL_TOPICS = b"\xff\xff\xff\xff"


def produce(gateway: Gateway, topic: str, count: int) -> None:
    producer = KafkaProducer(bootstrap_servers=gateway.bootstrap)
    for future in [producer.send(topic, b"x") for _ in range(count)]:
        future.get(30)
    producer.close()


def test_a_lost_store_is_rebuilt_from_the_log(run: Run, tmp_path: Path) -> None:
    where = ("--set", f"node.data_dir={tmp_path}")
    gateway = Gateway(tmp_path)
    with gateway:
        assert run("topics", "create", "orders", "-p", "2", *where).status == 0
        produce(gateway, "orders", 20)
        moved = run("groups", "reset", "billing", "--topic", "orders", "--to", "latest", *where)
        assert moved.status == 0
        before = run("topics", "describe", "orders", "--json", *where).json
    for file in tmp_path.glob(f"{FILE_NAME}*"):
        file.unlink()
    with pytest.raises(ProgramFailed, match="recover-metadata"):
        gateway.start()

    done = run("recover-metadata", "--yes", *where)

    assert done.status == 0, done.err
    assert re.search(r"default +orders +2 ", done.out)
    with gateway:
        after = run("topics", "describe", "orders", "--json", *where).json
        assert (after["uuid"], after["partitions"]) == (before["uuid"], before["partitions"])
        positions = run("groups", "offsets", "billing", "--json", *where).json
        assert sum(position["offset"] for position in positions) == 20
        produce(gateway, "orders", 1)


def lose_metadata(data_dir: Path) -> None:
    for file in data_dir.glob(f"{FILE_NAME}*"):
        file.unlink()


def test_a_node_with_users_stays_closed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = ("--set", f"node.data_dir={tmp_path}")
    gateway = Gateway(tmp_path)
    with gateway:
        assert run("topics", "create", "orders", *where).status == 0
        produce(gateway, "orders", 1)
        monkeypatch.setattr("sys.stdin", io.StringIO("sesame\n"))
        added = run("users", "add", "ada", "--password-stdin", *where)
        assert added.status == 0, added.err
    lose_metadata(tmp_path)

    done = run("recover-metadata", "--yes", *where)

    assert done.status == 0, done.err
    assert "everybody must log in (auth.required), and the users are lost" in done.err
    with (
        gateway,
        Connection(gateway.kafka_port) as connection,
        pytest.raises(
            (OSError, AssertionError)
        ),  # closed: a client without a login is not served
    ):
        connection.call(METADATA, 1, ALL_TOPICS)


def test_a_node_without_users_is_open_again_and_says_so(run: Run, tmp_path: Path) -> None:
    where = ("--set", f"node.data_dir={tmp_path}")
    gateway = Gateway(tmp_path)
    with gateway:
        assert run("topics", "create", "orders", *where).status == 0
        produce(gateway, "orders", 1)
    lose_metadata(tmp_path)

    done = run("recover-metadata", "--yes", "--json", *where)

    assert done.status == 0, done.err
    assert "WARNING: nobody must log in" in done.err
    with gateway:
        produce(gateway, "orders", 1)


def test_the_config_has_the_last_word(run: Run, tmp_path: Path) -> None:
    where = ("--set", f"node.data_dir={tmp_path}")
    with Gateway(tmp_path, {"auth.required": "true"}) as gateway:
        assert run("topics", "create", "orders", *where).status == 0
        gateway.kill()
    with Gateway(tmp_path, {"auth.required": "false"}) as gateway:
        produce(gateway, "orders", 1)
    lose_metadata(tmp_path)

    done = run("recover-metadata", "--yes", *where)

    assert "WARNING: nobody must log in" in done.err


def test_a_running_node_is_left_alone(run: Run, tmp_path: Path) -> None:
    with Gateway(tmp_path):
        done = run("recover-metadata", "--yes", "--set", f"node.data_dir={tmp_path}")
    assert done.status == 1
    assert "is in use by process" in done.err


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["node.data_dir={}"], "holds no log"),
        (["node.data_dir={}/none"], "is not there"),
        (["storage.adapter=memory"], "only segment_log and s3 can tell"),
    ],
)
def test_without_a_log_nothing_is_made(
    run: Run, tmp_path: Path, settings: list[str], words: str
) -> None:
    done = run("recover-metadata", *(f"--set={text.format(tmp_path)}" for text in settings))
    assert done.status == 1
    assert words in done.err
    assert not (tmp_path / FILE_NAME).exists()
