"""The task that merges: what it does not hold up, and that it never ends by itself."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from storage_adapters.s3 import merge_plan
from tests.storage_adapters.s3.merging_setup import NewSetup, fill


@pytest.mark.parametrize("name", ["log_round", "group_inputs"])
async def test_the_loop_goes_on_while_a_round_is_planned(
    new_setup: NewSetup, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    setup = await new_setup()
    await fill(setup)
    before = setup.contents()
    loop, may_go_on = asyncio.get_running_loop(), threading.Event()
    plan: Callable[..., Any] = getattr(merge_plan, name)

    def slow_plan(*args: Any, **options: Any) -> Any:
        loop.call_soon_threadsafe(may_go_on.set)  # what the loop is to do meanwhile
        assert may_go_on.wait(20)
        return plan(*args, **options)

    monkeypatch.setattr(merge_plan, name, slow_plan)

    await setup.merger.run_due()

    assert (setup.merger.rounds, setup.merger.failures) == (1, 0)
    assert setup.contents() == before


async def test_a_round_is_planned_while_partitions_come_and_go(
    new_setup: NewSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = await new_setup()
    await fill(setup)
    plan, loop = merge_plan.group_inputs, asyncio.get_running_loop()

    def plan_late(*args: Any) -> Any:
        planned = plan(*args)
        moving = asyncio.run_coroutine_threadsafe(change(), loop)
        moving.result(60)
        return planned

    async def change() -> None:
        await setup.truncate(1, 2)
        await setup.delete(3)

    monkeypatch.setattr(merge_plan, "group_inputs", plan_late)
    setup.merger.start()

    setup.merger.wake()
    async with asyncio.timeout(60):
        while not setup.merger.rounds:  # noqa: ASYNC110 - there is no event of it
            await asyncio.sleep(0)

    assert setup.merger.failures == 0
    assert setup.contents(setup.restarted()) == setup.contents()
    assert len(setup.contents()[1]) == 2


async def test_a_mistake_of_ours_is_told_of_and_merging_goes_on(new_setup: NewSetup) -> None:
    setup = await new_setup()
    call_again = setup.merger._call_again

    def mistake() -> None:
        setup.merger._call_again = call_again  # type: ignore[method-assign]
        raise ValueError("a mistake of ours")

    setup.merger._call_again = mistake  # type: ignore[method-assign]
    with capture_logs() as lines:
        setup.merger.start()
        setup.merger.wake()
        async with asyncio.timeout(60):
            while not setup.merger.failures:  # noqa: ASYNC110 - there is no event of it
                await asyncio.sleep(0)
    (told,) = [line for line in lines if line["event"] == "no merge"]
    assert isinstance(told["exc_info"], ValueError)

    await fill(setup)
    setup.clock.advance(1_000)
    setup.merger.wake()

    async with asyncio.timeout(60):
        while not setup.merger.rounds:  # noqa: ASYNC110 - there is no event of it
            await asyncio.sleep(0)
