"""What every test shares: tools that are missing are a reason to skip, in CI to fail."""

import os
import shutil
from asyncio import AbstractEventLoop
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack

import pytest
import uvloop
from hypothesis import settings

from gateway.sql import engines as sql
from tests.gateway import postgres
from tests.support.default_ports import hold_default_ports
from tests.support.gateway import LAUNCHED
from tests.support.toolchain import PACKAGES

_TOOLS = {
    "java": ("java", "javac", "mvn"),
    "go": ("go",),
    "kcat": ("kcat",),
    "node": ("node", "npm"),
    "mosquitto": ("mosquitto", "mosquitto_pub"),
}

# To wait for the disk at every commit is half the time of tests that make a database of their own,
# and nobody takes the power from this process.
_SYNCED = sql.SYNCHRONOUS
pytest.MonkeyPatch().setattr(sql, "SYNCHRONOUS", "OFF")

# A release's tests find the same on every machine. CI searches on, from a seed that it prints
# (`.ci/run`); what it or a soak finds is kept as an ``@example``.
settings.register_profile("default", max_examples=100, deadline=None, derandomize=True)
settings.register_profile("ci", max_examples=100, deadline=None, print_blob=True)
settings.register_profile("soak", max_examples=20_000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(scope="session", autouse=True)
def held_default_ports() -> Iterator[None]:
    """With CI=true nothing can listen on a default port: every test takes ports of its own."""
    with ExitStack() as stack:
        if os.environ.get("CI") == "true":
            hold_default_ports(stack)
        yield


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], AbstractEventLoop]]:
    """Test on the event loop that the gateway runs on."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of a group on one worker: their ids end in its name, which xdist schedules by.

    xdist 3.8 puts the name where pytest 9.2 looks for an id no more, and scatters the groups.
    """
    if not getattr(config.option, "loadgroup", False):
        return
    for item in items:
        names = sorted({str(one.args[0]) for one in item.iter_markers("xdist_group")})
        suffix = f"@{'_'.join(names)}"
        if names and not item.nodeid.endswith(suffix):
            item._id = type(item.id).parse(f"{item.nodeid}{suffix}")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose marker names a tool that is missing."""
    for marker, tools in _TOOLS.items():
        if item.get_closest_marker(marker) is None:
            continue
        for tool in tools:
            if shutil.which(tool) is None:
                pytest.skip(f"{tool} is missing: install {PACKAGES.get(tool, tool)}")


@pytest.fixture
def synced_sqlite(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite as it is outside of tests: in this process too, it waits for the disk."""
    monkeypatch.setattr(sql, "SYNCHRONOUS", _SYNCED)


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A database of the tests' own, which each test leaves as it likes."""
    reason = postgres.missing()
    if reason is not None:
        pytest.skip(reason)
    with postgres.running_postgres() as url:
        yield url


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With CI=true a skip that says what to install is a failure: CI has everything.

    A failure shows what the gateways have logged that ran meanwhile.
    """
    report = yield
    if (
        report.skipped
        and os.environ.get("CI") == "true"
        and " install " in str(report.longrepr)
    ):
        report.outcome = "failed"
    if report.failed:
        for gateway in LAUNCHED:
            report.sections.append((f"gateway on {gateway.bootstrap}", gateway.tail()))
    if report.when == "teardown":
        for gateway in [one for one in LAUNCHED if not one.is_running]:
            LAUNCHED.discard(gateway)
    return report
