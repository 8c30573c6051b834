"""Samples for the charts: taken while somebody asks, and not otherwise."""

from dataclasses import replace
from pathlib import Path

from gateway.admin.live import EVERY_MS, SAMPLES_MAX, WATCHED_MS_MAX, LiveSamples
from gateway.clock import ManualClock
from gateway.internal_metrics import register_metrics
from tests.console.http_client import Browser
from tests.gateway.admin.kernel_with_admin import running_admin


async def test_samples_end_when_nobody_asks_any_more(tmp_path: Path) -> None:
    async with running_admin(tmp_path) as setup:
        clock = ManualClock()
        setup.state.kernel = replace(setup.kernel, clock=clock)
        samples = LiveSamples(setup.state)
        seen = [(samples.is_running, len(samples._samples))]
        samples.since(0)
        clock.advance(WATCHED_MS_MAX)
        samples._tick()
        seen.append((samples.is_running, len(samples._samples)))
        clock.advance(1)
        samples._tick()
        seen.append((samples.is_running, len(samples._samples)))
        assert seen == [(False, 0), (True, 2), (False, 0)]


async def test_a_ring_of_samples_is_bounded(tmp_path: Path) -> None:
    async with running_admin(tmp_path) as setup:
        clock = ManualClock()
        setup.state.kernel = replace(setup.kernel, clock=clock)
        samples = LiveSamples(setup.state)
        for _ in range(SAMPLES_MAX + 2):
            found = samples.since(0)
            clock.advance(EVERY_MS)
            samples._tick()
        assert len(found) == SAMPLES_MAX
        newest = found[-1]["at_unix_ms"]
        assert [one["at_unix_ms"] for one in samples.since(newest)] == [newest + EVERY_MS]


async def test_samples_have_what_charts_show(tmp_path: Path) -> None:
    async with running_admin(tmp_path) as setup:
        setup.state.metrics = setup.kernel.metrics
        register_metrics(setup.kernel, {})
        browser = Browser(setup.server)
        await browser.open()
        answer = (await browser.get("/v1/live?since=0")).json
        sample = answer["samples"][-1]
        assert answer["every_ms"] == EVERY_MS
        assert sample["rss_bytes"] > 10_000_000
        assert sample["queues"] == {"ready": 0, "in_flight": 0, "delayed": 0}
        assert sample["lag"] == 0
        assert sample["records_in"] <= 1  # the journal of the kernel's own queue
        assert (await browser.get("/v1/live?since=x")).status == 400
