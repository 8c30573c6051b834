"""Fixtures and rules of all tests: a missing tool skips a test, and fails it in CI."""

import os
import shutil
import sys
from asyncio import AbstractEventLoop
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import uvloop
from hypothesis import settings

from gateway.sql import engines as sql
from tests.gateway import postgres
from tests.support.compiled_files import compile_share, share_of
from tests.support.default_ports import hold_default_ports
from tests.support.gateway import LAUNCHED
from tests.support.leftover_threads import ThreadWatch
from tests.support.toolchain import PACKAGES
from tests.support.unit import UnitLoop, is_unit, nothing_started, starts

_TOOLS = {
    "java": ("java", "javac", "mvn"),
    "go": ("go",),
    "kcat": ("kcat",),
    "node": ("node", "npm"),
    "mosquitto": ("mosquitto", "mosquitto_pub"),
    "browser": ("chromium", "npm"),
}

# To wait for the disk at every commit is half the time of tests that make a database of their own,
# and nobody takes the power from this process.
_SYNCED = sql.SYNCHRONOUS
pytest.MonkeyPatch().setattr(sql, "SYNCHRONOUS", "OFF")

_THREADS = ThreadWatch()

# A release's tests find the same on every machine. CI searches on, from a seed that it prints
# (`.ci/run`); what it or a soak finds is kept as an ``@example``.
settings.register_profile("default", max_examples=100, deadline=None, derandomize=True)
settings.register_profile("ci", max_examples=100, deadline=None, print_blob=True)
settings.register_profile("soak", max_examples=20_000, deadline=None, print_blob=True)
settings.register_profile(
    "unit", max_examples=10, stateful_step_count=20, deadline=None, derandomize=True
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--unit", action="store_true", help="run the unit tests, and no others")


def pytest_configure(config: pytest.Config) -> None:
    """Take the number of examples from the environment, in unit tests a small one."""
    default = "unit" if config.getoption("--unit") else "default"
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", default))


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile a worker's share of the files that all of them collect."""
    share = share_of(session.config)
    if share is not None and not sys.dont_write_bytecode:
        compile_share(session.config, *share)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the files without unit tests before they are imported."""
    is_test = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    return (config.getoption("--unit") and is_test and starts(collection_path)) or None


@pytest.fixture(scope="session", autouse=True)
def held_default_ports(pytestconfig: pytest.Config) -> Iterator[None]:
    """With CI=true nothing can listen on a default port: every test takes ports of its own."""
    with ExitStack() as stack:
        if os.environ.get("CI") == "true" and not pytestconfig.getoption("--unit"):
            hold_default_ports(stack)
        yield


def pytest_asyncio_loop_factories(
    config: pytest.Config,
) -> dict[str, Callable[[], AbstractEventLoop]]:
    """Test on the event loop that the gateway runs on."""
    if config.getoption("--unit"):
        return {"uvloop": UnitLoop}
    return {"uvloop": uvloop.new_event_loop}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a unit test that starts something."""
    if not item.config.getoption("--unit"):
        return (yield)
    with nothing_started():
        return (yield)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose the unit tests, and keep the tests of a group on one worker.

    The ids of a group's tests end in its name, which xdist schedules by: xdist 3.8 puts the name
    where pytest 9.2 looks for an id no more, and scatters the groups.
    """
    if config.getoption("--unit"):
        others = [item for item in items if not is_unit(item)]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if is_unit(item)]
    if not getattr(config.option, "loadgroup", False):
        return
    for item in items:
        names = sorted({str(one.args[0]) for one in item.iter_markers("xdist_group")})
        suffix = f"@{'_'.join(names)}"
        if names and not item.nodeid.endswith(suffix):
            item._id = type(item.id).parse(f"{item.nodeid}{suffix}")


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object],
) -> Generator[None, object, object]:
    """Let the threads of a fixture that several tests share go on after this one."""
    value = yield
    if fixturedef.scope != "function":
        _THREADS.keep()
    return value


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown() -> Generator[None, None, None]:
    """Fail the test that leaves threads behind, and not the ones that run beside them."""
    with _THREADS.ended():
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose marker names a tool that is missing."""
    _THREADS.keep()
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
