"""kill -9 at random moments under load: what was acknowledged is there, in each flush policy.

Data handed to the kernel survives the death of a process, so all three policies promise it;
what only a sync protects against (a power loss) has tests beside the storage adapter.
"""

from pathlib import Path

import pytest

from tests.crash.kill_schedule import how_often, moments, small_segments
from tests.crash.load import (
    GroupReader,
    Load,
    check_commits,
    check_dense,
    count_of,
    read_all,
    record_all,
)
from tests.support.gateway import Gateway
from tests.support.history import History
from tests.support.history_kafka import check_partitions
from tests.support.topics import create_topic
from tests.support.waiting import wait_until

PARTITIONS = 3
ACKS_BETWEEN_KILLS_MAX = 1_500
PROGRESS_S_MAX = 180
EVENTS_PER_KILL_MAX = 1_000_000  # 50,000 on two cores

pytestmark = pytest.mark.crash


@how_often(5, 100)
@pytest.mark.parametrize("flush", ["group", "interval", "never"])
def test_acknowledged_records_survive_kills(tmp_path: Path, flush: str, kills: int) -> None:
    with Gateway(tmp_path / "data", small_segments(flush, 4 << 20)) as gateway:
        topic = create_topic(gateway.bootstrap, partitions=PARTITIONS)
        history = History(events_max=EVENTS_PER_KILL_MAX * kills)
        once = _load(gateway, topic, "once", history)
        plain = _load(gateway, topic, "plain", history)
        reader = GroupReader(gateway.bootstrap, topic, "resumes", history)
        for part in (once, plain, reader):
            part.start()

        _wait_for_commit(reader, "the group commits before the first kill")
        acknowledged = count_of(once, plain)
        for moment in moments(kills, acknowledged, apart_max=ACKS_BETWEEN_KILLS_MAX):
            gateway.kill()
            promised = dict(reader.committed)
            gateway.restart()
            check_commits(gateway.bootstrap, topic, "resumes", promised, moment)
        _wait_for_commit(reader, "the group commits again after the last kill")
        once.finish()
        plain.finish()
        reader.finish()

        stored = read_all(gateway.bootstrap, topic, PARTITIONS)
        check_dense(stored, PARTITIONS)
        record_all(history, stored)
        check_partitions(history, resending={"plain"}).raise_problems()


def _wait_for_commit(reader: GroupReader, what: str) -> None:
    before = dict(reader.committed)
    wait_until(lambda: reader.committed != before, within_s=PROGRESS_S_MAX, what=what)


def _load(gateway: Gateway, topic: str, name: str, history: History) -> Load:
    return Load(
        gateway.bootstrap,
        topic,
        partitions=PARTITIONS,
        idempotent=name == "once",
        name=name,
        history=history,
    )
