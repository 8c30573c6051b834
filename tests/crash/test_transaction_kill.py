"""kill -9 in transactions: all of one is kept, or nothing; its outcome is decided once."""

from pathlib import Path

import pytest

from tests.crash.kill_schedule import how_often, moments, small_segments
from tests.crash.transaction_gateway import MOMENTS
from tests.crash.transaction_load import TransactionLoad
from tests.support.gateway import Gateway
from tests.support.transaction_history import find_anomalies
from tests.support.waiting import wait_until

pytestmark = pytest.mark.crash

WORKERS = 3
COMMITS_BETWEEN_KILLS_MAX = 60
COMMITS_AFTER = 5
PROGRESS_S_MAX = 120


@how_often(3, 30)
def test_transactions_are_whole_after_kills(tmp_path: Path, kills: int) -> None:
    settings = small_segments("group", 1 << 20)
    with Gateway(tmp_path / "data", settings) as gateway:
        load = TransactionLoad(gateway.bootstrap, "ledger", WORKERS)
        load.start()
        observed = []
        for _ in moments(
            kills,
            lambda: load.committed,
            apart_max=COMMITS_BETWEEN_KILLS_MAX,
            within_s=PROGRESS_S_MAX,
        ):
            gateway.kill()
            gateway.restart()
            observed.append(load.final())
        _finish(load)

        final = load.final()
        assert find_anomalies(load.attempts, final, observed) == []
        assert load.wrong_offsets() == []


@pytest.mark.parametrize("moment", MOMENTS)
def test_end_that_is_cut_short_is_decided_once(tmp_path: Path, moment: str) -> None:
    gateway = KillingGateway(
        tmp_path / "data",
        env={"HEADGATE_TEST_KILL_AT": moment, "HEADGATE_TEST_KILL_AFTER": "10"},
    )
    with gateway:
        load = TransactionLoad(gateway.bootstrap, "ledger", 1)
        load.start()
        program = gateway.program
        assert program is not None
        wait_until(
            lambda: not program.is_running, within_s=PROGRESS_S_MAX, what="the end of the node"
        )
        gateway.kill()
        gateway.env.clear()
        gateway.restart()
        _finish(load)

        assert find_anomalies(load.attempts, load.final()) == []
        assert load.wrong_offsets() == []


class KillingGateway(Gateway):
    """Gateway that kills itself as its environment says."""

    module = "tests.crash.transaction_gateway"


def _finish(load: TransactionLoad) -> None:
    """Let some more transactions commit, so that what was open has ended."""
    enough = load.committed + COMMITS_AFTER
    wait_until(
        lambda: bool(load.faults) or load.committed >= enough,
        within_s=PROGRESS_S_MAX,
        what="commits after the last kill",
    )
    load.stop()
