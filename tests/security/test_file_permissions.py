"""The data directory is its owner's, and nothing in it can be read by everybody."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaProducer

from tests.support.gateway import Gateway

pytestmark = pytest.mark.interop


@pytest.fixture(autouse=True)
def _permissive() -> Iterator[None]:
    """A process that was started by somebody who lets everybody read everything."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_data_directory_is_private_with_all_that_is_in_it(tmp_path: Path) -> None:
    settings = {"adapters.mqtt.bind": "127.0.0.1:0", "adapters.sqs.bind": "127.0.0.1:0"}
    with Gateway(tmp_path / "data", settings) as gateway:
        producer = KafkaProducer(bootstrap_servers=gateway.bootstrap)
        producer.send("orders", b"one").get(30)
        producer.close()
        found = list(gateway.data_dir.rglob("*"))
        modes = {str(path): mode_of(path) for path in found}
    assert mode_of(tmp_path / "data") == 0o700
    assert any(path.endswith("metadata.sqlite") for path in modes)
    assert {path: oct(mode) for path, mode in modes.items() if mode & 0o007} == {}


@pytest.mark.parametrize(("mode", "after"), [(0o777, 0o770), (0o755, 0o750), (0o750, 0o750)])
def test_one_that_is_open_to_everybody_is_closed_and_a_group_stays(
    tmp_path: Path, mode: int, after: int
) -> None:
    data_dir = tmp_path / "data"
    data_dir.mkdir(mode=mode)
    with Gateway(data_dir) as gateway:
        warned = any("was accessible to all users" in line for line in gateway.lines)
    assert mode_of(data_dir) == after
    assert warned is (mode != after)
