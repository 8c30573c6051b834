"""kill -9 at random moments under load: what was acknowledged is there, in each flush policy.

Data handed to the kernel survives the death of a process, so all three policies promise it;
what only a sync protects against (a power loss) has tests beside the storage adapter.
"""

import random
from collections.abc import Callable
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
from tests.support.gateway import Gateway
from tests.support.topics import create_topic
from tests.support.waiting import wait_until

PARTITIONS = 3
KILLS = 30
KILLS_SOAK = 100
ACKS_BETWEEN_KILLS_MAX = 1_500
PROGRESS_S_MAX = 60
SEGMENT_BYTES = 4 << 20  # small, so that kills meet segment changes too

pytestmark = pytest.mark.crash


@pytest.mark.timeout(600)
@pytest.mark.parametrize("flush", ["group", "interval", "never"])
def test_acknowledged_records_survive_kills(tmp_path: Path, flush: str) -> None:
    _kill_often(tmp_path, flush, kills=KILLS)


@pytest.mark.soak
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("flush", ["group", "interval", "never"])
def test_acknowledged_records_survive_a_hundred_kills(tmp_path: Path, flush: str) -> None:
    _kill_often(tmp_path, flush, kills=KILLS_SOAK)


def _kill_often(folder: Path, flush: str, *, kills: int) -> None:
    settings = {
        "storage.flush": flush,
        "storage.segment_bytes": SEGMENT_BYTES,
        "storage.reserve_bytes": SEGMENT_BYTES // 2,
    }
    with Gateway(folder / "data", settings) as gateway:
        topic = create_topic(gateway.bootstrap, partitions=PARTITIONS)
        once = _load(gateway, topic, "once", idempotent=True)
        plain = _load(gateway, topic, "plain", idempotent=False)
        reader = GroupReader(gateway.bootstrap, topic, "resumes")
        for part in (once, plain, reader):
            part.start()

        _wait_for_commit(reader, "the group commits before the first kill")
        _kill_under_load(gateway, topic, (once, plain), reader, kills=kills)
        _wait_for_commit(reader, "the group commits again after the last kill")
        once.finish()
        plain.finish()
        reader.finish()

        stored = read_all(gateway.bootstrap, topic, PARTITIONS)
        check_dense(stored, PARTITIONS)
        check_kept(once, stored)
        check_kept(plain, stored)
        check_once(once, stored)


def _wait_for_commit(reader: GroupReader, what: str) -> None:
    before = dict(reader.committed)
    wait_until(lambda: reader.committed != before, within_s=PROGRESS_S_MAX, what=what)


def _load(gateway: Gateway, topic: str, name: str, *, idempotent: bool) -> Load:
    return Load(
        gateway.bootstrap, topic, partitions=PARTITIONS, idempotent=idempotent, name=name
    )


def _is_at(count: Callable[[], int], target: int) -> bool:
    return count() >= target


def _kill_under_load(
    gateway: Gateway,
    topic: str,
    loads: tuple[Load, Load],
    reader: GroupReader,
    *,
    kills: int,
) -> None:
    chooser = random.SystemRandom()
    acknowledged = count_of(*loads)
    for kill in range(kills):
        target = acknowledged() + chooser.randrange(1, ACKS_BETWEEN_KILLS_MAX)
        what = f"records are acknowledged before kill {kill + 1} of {kills}"
        wait_until(partial(_is_at, acknowledged, target), within_s=PROGRESS_S_MAX, what=what)
        gateway.kill()
        promised = dict(reader.committed)
        gateway.restart()
        kept = committed(gateway.bootstrap, topic, "resumes", PARTITIONS)
        lost = {n: at for n, at in promised.items() if kept.get(n, -1) < at}
        assert not lost, f"kill {kill + 1}: commits {lost} are gone, {kept} are there"
