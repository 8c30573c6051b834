"""``headgate backup`` of a node under load, and ``headgate restore`` elsewhere."""

import io
from pathlib import Path

import pytest

from gateway.metadata.sql import FILE_NAME as METADATA_NAME
from storage_adapters.segment_log.settled_files import read_manifest
from tests.cli.conftest import Run
from tests.crash.load import Load, check_dense, read_all
from tests.support.gateway import Gateway
from tests.support.kafka_wire import Connection, batch
from tests.support.topics import create_topic
from tests.support.waiting import wait_until

PARTITIONS = 4
SMALL = {
    "storage.segment_bytes": 4 << 20,
    "storage.reserve_bytes": 0,
    "storage.settle_after_bytes": 0,
    "broker.producer_snapshot_bytes": 1 << 20,
}


def has_settled(data_dir: Path) -> bool:
    """Say whether there are settled segments that count."""
    manifest = read_manifest(data_dir)
    return manifest is not None and bool(manifest.files)


@pytest.mark.crash
def test_a_backup_under_load_has_all_that_was_acknowledged_before(
    run: Run, tmp_path: Path
) -> None:
    target = tmp_path / "backup"
    with Gateway(tmp_path / "data", SMALL) as gateway:
        where = ("--set", f"node.data_dir={gateway.data_dir}")
        topic = create_topic(gateway.bootstrap, partitions=PARTITIONS)
        load = Load(
            gateway.bootstrap, topic, partitions=PARTITIONS, idempotent=True, name="load"
        )
        load.start()
        wait_until(lambda: len(load.acknowledged) > 3_000, within_s=60, what="some load")
        wait_until(lambda: has_settled(gateway.data_dir), within_s=60, what="settling")
        before = dict(load.acknowledged)
        done = run("backup", str(target), "--json", *where)
        assert done.status == 0, done.err
        wait_until(
            lambda: len(load.acknowledged) > len(before) + 100, within_s=60, what="more load"
        )
        load.finish()
        again = run("backup", str(target), *where)
        assert again.status == 1
        assert "not empty" in again.err
    assert done.json["state"] == "done"

    restored = run("restore", str(target), str(tmp_path / "elsewhere"), "--json")

    assert restored.status == 0, restored.err
    assert restored.json["total_bytes"] == done.json["total_bytes"]
    assert has_settled(tmp_path / "elsewhere")
    for folder in (target, tmp_path / "elsewhere"):
        verified = run("log", "verify", str(folder))
        assert verified.status == 0, verified.out
    with Gateway(tmp_path / "elsewhere", SMALL) as gateway:
        stored = read_all(gateway.bootstrap, topic, partitions=PARTITIONS)
        assert [place for value, place in before.items() if stored.get(place) != value] == []
        check_dense(stored, PARTITIONS)
        more = Load(
            gateway.bootstrap, topic, partitions=PARTITIONS, idempotent=True, name="more"
        )
        more.start()
        wait_until(lambda: len(more.acknowledged) > 10, within_s=60, what="it goes on")
        more.finish()
    again = run("restore", str(target), str(tmp_path / "elsewhere"))
    assert again.status == 1
    assert "empty folder" in again.err


def test_a_restored_log_still_says_that_everybody_must_log_in(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, elsewhere = tmp_path / "backup", tmp_path / "elsewhere"
    with Gateway(tmp_path / "data") as gateway:
        where = ("--set", f"node.data_dir={gateway.data_dir}")
        assert run("topics", "create", "orders", *where).status == 0
        with Connection(gateway.kafka_port) as producer:
            assert producer.produce("orders", 0, batch([b"one"]))[0] == 0
        monkeypatch.setattr("sys.stdin", io.StringIO("sesame\n"))
        assert run("users", "add", "ada", "--password-stdin", *where).status == 0
        assert run("backup", str(target), *where).status == 0
    assert run("restore", str(target), str(elsewhere)).status == 0
    for path in elsewhere.glob(f"{METADATA_NAME}*"):
        path.unlink()

    done = run("recover-metadata", "--yes", "--set", f"node.data_dir={elsewhere}")

    assert done.status == 0, done.err
    assert "everybody must log in (auth.required), and the users are lost" in done.err


def test_a_relative_folder_is_one_of_the_caller(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Gateway(tmp_path / "data") as gateway:
        monkeypatch.chdir(tmp_path)
        done = run("backup", "here", "--set", f"node.data_dir={gateway.data_dir}")
    assert done.status == 0, done.err
    assert (tmp_path / "here" / "BACKUP").exists()


def test_a_directory_in_use_is_left_alone(run: Run, tmp_path: Path) -> None:
    (tmp_path / "backup").mkdir()
    with Gateway(tmp_path / "data") as gateway:
        done = run("restore", str(tmp_path / "backup"), str(gateway.data_dir))
    assert done.status == 1
    assert "is in use by process" in done.err


def test_memory_cannot_be_backed_up(run: Run, tmp_path: Path) -> None:
    with Gateway(tmp_path / "data", {"storage.adapter": "memory"}) as gateway:
        where = f"node.data_dir={gateway.data_dir}"
        done = run("backup", str(tmp_path / "backup"), "--set", where)
    assert done.status == 1
    assert "memory cannot be backed up" in done.err
