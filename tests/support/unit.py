"""Unit tests: which tests they are, and what they may not do. The one place that decides.

A unit test starts no process, listens on no port, connects to nothing and needs no tool. Its file
is not in tests/architecture, and imports none of ``STARTERS``, not even by way of another module
of the tests; it asks for none of ``STARTED`` and has none of ``MARKERS``. ``make test-unit`` runs
them with ``pytest --unit``, which fails a test that starts something after all.
"""

import ast
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final, NoReturn

import pytest
import uvloop

ROOT: Final = Path(__file__).resolve().parents[2]

STARTERS: Final = frozenset(
    {
        "gateway.cli.app",
        "gateway.listener",
        "gateway.main",
        "gateway.testing.ports",
        "gateway.testing.process",
        "http.client",
        "http.server",
        "multiprocessing",
        "socket",
        "subprocess",
        "tests.gateway.postgres",
        "urllib.request",
    }
)
"""Modules that start processes or servers, or talk to them; so does any that is named server."""

STARTED: Final = frozenset({"postgres_url", "s3", "server_of_all", "site", "spark"})
"""Fixtures of a conftest.py that start something."""

MARKERS: Final = frozenset(
    {
        "browser",
        "crash",
        "go",
        "heavy",
        "interop",
        "java",
        "kcat",
        "mosquitto",
        "node",
        "postgres",
        "soak",
    }
)
"""Markers of tests that need a tool or a server, or have too much to do."""

_REFUSED: Final = frozenset(
    {
        "os.exec",
        "os.fork",
        "os.forkpty",
        "os.posix_spawn",
        "os.spawn",
        "os.system",
        "socket.bind",
        "socket.connect",
        "subprocess.Popen",
    }
)
_guard: dict[str, bool] = {}


def is_unit(item: pytest.Item) -> bool:
    """Return whether a test is a unit test."""
    fixtures = getattr(item, "fixturenames", ())
    is_marked = any(marker.name in MARKERS for marker in item.iter_markers())
    is_left_out = is_marked or is_of_tree(item.path) or starts(item.path)
    return STARTED.isdisjoint(fixtures) and not is_left_out


def starts(file: Path) -> bool:
    """Return whether a file of the tests imports what starts something."""
    return file.is_relative_to(ROOT / "tests") and _starts(file)


def is_of_tree(file: Path) -> bool:
    """Return whether a file tests the whole tree, and not a unit: it reads every source."""
    return file.is_relative_to(ROOT / "tests" / "architecture")


@cache
def _starts(file: Path) -> bool:
    names = _imported(file)
    if not names.isdisjoint(STARTERS) or any(name.endswith(".server") for name in names):
        return True
    files = {_file(name) for name in names if name.startswith("tests.")}
    return any(_starts(one) for one in files - {None, file} if one is not None)


def _imported(file: Path) -> set[str]:
    """Return the dotted names of the modules that a file may import."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def _file(module: str) -> Path | None:
    file = (ROOT / module.replace(".", "/")).with_suffix(".py")
    return file if file.is_file() else None


@contextmanager
def nothing_started() -> Iterator[None]:
    """Fail the test that starts a process, binds a socket or connects one meanwhile."""
    if not _guard:
        sys.addaudithook(_refuse_event)
    was_on = _guard.get("is_on", False)
    _guard["is_on"] = True
    try:
        yield
    finally:
        _guard["is_on"] = was_on


def _refuse_event(event: str, _: tuple[object, ...]) -> None:
    if _guard["is_on"] and event in _REFUSED:
        _refuse(event)


def _refuse(action: str) -> NoReturn:
    pytest.fail(f"{action} in a unit test; tests/support/unit.py says which tests may")


class UnitLoop(uvloop.Loop):
    """The gateway's event loop without the calls that Python's audit events do not show."""

    async def subprocess_exec(self, *_: object, **__: object) -> NoReturn:
        """Fail the test."""
        _refuse("subprocess_exec")

    async def subprocess_shell(self, *_: object, **__: object) -> NoReturn:
        """Fail the test."""
        _refuse("subprocess_shell")

    async def create_datagram_endpoint(self, *_: object, **__: object) -> NoReturn:
        """Fail the test."""
        _refuse("create_datagram_endpoint")

    async def create_connection(self, *_: object, **__: object) -> NoReturn:
        """Fail the test."""
        _refuse("create_connection")

    async def create_unix_connection(self, *_: object, **__: object) -> NoReturn:
        """Fail the test."""
        _refuse("create_unix_connection")
