"""kill -9 at random moments under AMQP load: nothing that was confirmed is lost."""

from pathlib import Path

import pytest

from gateway.testing.ports import free_port
from tests.crash.kill_schedule import how_often, moments, small_segments
from tests.support.amqp_load import Consumer, Publisher, Worker
from tests.support.gateway import Gateway
from tests.support.waiting import wait_until

CONFIRMED_BETWEEN_KILLS_MAX = 2_000
DRAIN_S_MAX = 120

pytestmark = pytest.mark.crash


@how_often(4, 100)
def test_what_was_confirmed_comes_after_kills(tmp_path: Path, kills: int) -> None:
    port = free_port()
    settings = {
        **small_segments("group", 1 << 20),
        "adapters.amqp.bind": f"127.0.0.1:{port}",
    }
    came: dict[bytes, int] = {}
    publishers = [Publisher(port, "work", f"p{number}") for number in range(2)]
    consumers = [Consumer(port, "work", came) for _ in range(2)]
    workers: list[Worker] = [*publishers, *consumers]

    def confirmed() -> int:
        assert [failure for worker in workers for failure in worker.failures] == []
        return sum(len(publisher.confirmed) for publisher in publishers)

    with Gateway(tmp_path / "data", settings) as gateway:
        for worker in workers:
            worker.start()
        for _ in moments(kills, confirmed, apart_max=CONFIRMED_BETWEEN_KILLS_MAX):
            gateway.kill()
            gateway.restart()
        for publisher in publishers:
            publisher.finish()
        sent = {body for publisher in publishers for body in publisher.confirmed}
        wait_until(
            lambda: not sent.difference(came),
            within_s=DRAIN_S_MAX,
            what="all that was confirmed",
        )
        for consumer in consumers:
            consumer.finish()
        assert confirmed() >= kills
    assert any(publisher.resent for publisher in publishers), "no kill met a publish"
    assert any(consumer.redelivered for consumer in consumers), "no kill met a delivery"
