"""Measurement before a scrape: once for several at a time, once a second at most."""

import asyncio

from gateway.metrics import Metrics
from tests.support.waiting import turns


async def test_scrapes_at_the_same_time_share_one_measurement() -> None:
    metrics = Metrics()
    begun: list[int] = []
    may_end = asyncio.Event()

    async def measure() -> None:
        begun.append(len(begun))
        await may_end.wait()

    metrics.before_scrape.append(measure)
    scrapes = [asyncio.ensure_future(metrics.prepare()) for _ in range(3)]
    await turns()
    may_end.set()
    await asyncio.gather(*scrapes)
    await metrics.prepare()

    assert begun == [0]


async def test_a_scrape_that_is_given_up_does_not_end_the_measurement_of_others() -> None:
    metrics = Metrics()
    may_end = asyncio.Event()
    ended: list[bool] = []

    async def measure() -> None:
        await may_end.wait()
        ended.append(True)

    metrics.before_scrape.append(measure)
    first, second = (asyncio.ensure_future(metrics.prepare()) for _ in range(2))
    await turns()
    first.cancel()
    await turns()
    may_end.set()
    await second

    assert ended == [True]
