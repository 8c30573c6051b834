"""Time that a request is charged: steps of the loop's thread, and no wait between them."""

import asyncio
import time

import pytest

from adapters.kafka.quotas.request_meter import RequestMeter
from features.quota.model import QuotaKey
from features.quota.rates import WindowedRate
from gateway.clock import ManualClock
from gateway.quotas.meters import ClientLimits, Meter, ThrottleCounts

BUSY_S = 0.02


class Recorded(WindowedRate):
    """A rate that remembers what it was charged."""

    def __init__(self) -> None:
        super().__init__()
        self.amounts: list[float] = []

    def charge(self, amount: float, now_ms: int, limit: float) -> int:
        self.amounts.append(amount)
        return super().charge(amount, now_ms, limit)


def metered() -> tuple[RequestMeter, Recorded]:
    rate = Recorded()
    meter = Meter(QuotaKey.REQUEST_PERCENTAGE, 50.0, rate, ManualClock(), ThrottleCounts())
    return RequestMeter(ClientLimits(None, None, meter, None), 3, 9), rate


def be_busy() -> None:
    until_s = time.perf_counter() + BUSY_S
    while time.perf_counter() < until_s:
        pass


async def test_steps_are_charged_and_waits_are_not() -> None:
    meter, rate = metered()

    async def work() -> str:
        be_busy()
        await asyncio.sleep(10 * BUSY_S)
        be_busy()
        return "done"

    assert await meter.timed(work()) == "done"
    meter.settle()
    [percent] = rate.amounts
    assert 2 * BUSY_S <= percent / 100 < 8 * BUSY_S


async def test_an_error_and_a_cancellation_go_through() -> None:
    meter, _ = metered()
    seen = []

    async def fail() -> None:
        await asyncio.sleep(0)
        msg = "as it was"
        raise ValueError(msg)

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    with pytest.raises(ValueError, match="as it was"):
        await meter.timed(fail())
    task = asyncio.create_task(meter.timed(wait()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cancelled"]


def test_a_request_is_charged_once_and_within_itself() -> None:
    meter, rate = metered()
    with meter:
        be_busy()
        with meter:
            assert meter.settle() == meter.settle()
    [percent] = rate.amounts
    assert percent / 100 >= BUSY_S
