"""The unit tests: they start nothing, and they are most of what needs no server."""

import asyncio
import multiprocessing
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from tests.support.unit import UnitLoop, nothing_started, starts

ROOT = Path(__file__).resolve().parents[2]
ECHO = [sys.executable, "-c", ""]


def listen() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()


def connect() -> None:
    with socket.socket() as peer:
        peer.connect(("127.0.0.1", 9))


def fork() -> None:
    """Fork in vain: the event comes before the fork."""
    assert os.fork() > 0


def fork_by_multiprocessing() -> None:
    multiprocessing.get_context("fork").Process(target=print).start()


async def start_server() -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    server.close()


async def start_unix_server() -> None:
    server = await asyncio.start_unix_server(lambda *_: None, "\0headgate-unit-test")
    server.close()


async def start_process() -> None:
    process = await asyncio.create_subprocess_exec(*ECHO)
    await process.wait()


async def start_shell() -> None:
    process = await asyncio.create_subprocess_shell("true")
    await process.wait()


async def open_connection() -> None:
    await asyncio.open_connection("127.0.0.1", 9)


async def open_datagrams() -> None:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(
        asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0)
    )
    transport.close()


@pytest.mark.parametrize(
    "action",
    [
        listen,
        connect,
        fork,
        fork_by_multiprocessing,
        lambda: subprocess.run(ECHO, check=True),
        lambda: os.system("true"),  # noqa: S605 - what is to be refused
        lambda: os.posix_spawn(sys.executable, ECHO, os.environ),
    ],
    ids=["listen", "connect", "fork", "multiprocessing", "subprocess", "system", "posix_spawn"],
)
def test_a_unit_test_that_starts_something_fails(action: Callable[[], object]) -> None:
    with nothing_started(), pytest.raises(pytest.fail.Exception, match="in a unit test"):
        action()


@pytest.mark.parametrize(
    "action",
    [
        start_server,
        start_unix_server,
        start_process,
        start_shell,
        open_connection,
        open_datagrams,
    ],
)
def test_a_unit_test_that_starts_something_by_the_loop_fails(
    action: Callable[[], Coroutine[object, object, None]],
) -> None:
    refused = pytest.raises(pytest.fail.Exception, match="in a unit test")
    with asyncio.Runner(loop_factory=UnitLoop) as runner, nothing_started(), refused:
        runner.run(action())


def test_after_it_all_may_be_started_again() -> None:
    with nothing_started():
        pass

    listen()
    subprocess.run(ECHO, check=True)


@pytest.mark.parametrize("folder", ["cli", "crash", "interop", "security", "plugins"])
def test_what_starts_servers_is_no_unit_test(folder: str) -> None:
    files = sorted((ROOT / "tests" / folder).rglob("test_*.py"))
    assert len(files) > 1
    assert any(starts(file) for file in files)


@pytest.mark.parametrize(
    "pattern",
    [
        "adapters/*/test_codec.py",
        "adapters/*/test_session.py",
        "adapters/*/test_mapping.py",
        "adapters/mqtt/packets/test_framing.py",
        "features/**/test_*.py",
        "gateway/queues/test_queue.py",
        "gateway/records/test_*.py",
        "storage_adapters/test_segment_log.py",
    ],
)
def test_what_is_pure_is_a_unit_test(pattern: str) -> None:
    files = sorted((ROOT / "tests").glob(pattern))
    assert files
    assert [str(file.relative_to(ROOT)) for file in files if starts(file)] == []
