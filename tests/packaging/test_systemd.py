"""systemd: states and pings as datagrams, and the unit file as systemd reads it."""

import asyncio
import configparser
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gateway.config.settings import NodeConfig
from gateway.systemd_notify import SystemdNotify
from tests.support.gateway import ROOT, Gateway
from tests.support.waiting import until, wait_until

UNIT = ROOT / "packaging" / "systemd" / "headgate.service"
READY, STOPPING, PING = "READY=1\nSTATUS=Serving", "STOPPING=1\nSTATUS=Draining", "WATCHDOG=1"


class Supervisor:
    """A datagram socket, as the one that systemd makes, and what has come to it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(f"\0{path[1:]}" if path.startswith("@") else path)
        self.socket.settimeout(0)
        self.states: list[str] = []

    def look(self) -> list[str]:
        while True:
            try:
                self.states.append(self.socket.recv(4096).decode())
            except BlockingIOError:
                return self.states


@pytest.fixture(params=["path", "abstract"])
def supervisor(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Supervisor]:
    path = "notify" if request.param == "path" else f"@headgate-notify-{os.getpid()}"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)  # a socket's path is short
        found = Supervisor(path)
        yield found
        found.socket.close()


def notify_of(supervisor: Supervisor, **more: str) -> SystemdNotify:
    environment = {"NOTIFY_SOCKET": supervisor.path, **more}
    return SystemdNotify.of(asyncio.get_running_loop(), environment)


async def test_states_are_sent_in_order(supervisor: Supervisor) -> None:
    notify = notify_of(supervisor)
    notify.ready()
    notify.stopping()
    assert supervisor.look() == [READY, STOPPING]


async def test_pings_go_on_while_stopping_and_end_with_close(supervisor: Supervisor) -> None:
    notify = notify_of(supervisor, WATCHDOG_USEC="2000", WATCHDOG_PID=str(os.getpid()))
    notify.ready()
    await until(lambda: supervisor.look().count(PING) > 2)
    notify.stopping()
    supervisor.states.clear()
    await until(lambda: supervisor.look().count(PING) > 2)
    notify.close()
    supervisor.look()
    supervisor.states.clear()
    await one_more_span()
    assert supervisor.look() == []


async def one_more_span() -> None:
    """Wait as long as for two pings of the test above."""
    loop = asyncio.get_running_loop()
    passed = loop.create_future()
    loop.call_later(0.002, passed.set_result, None)
    await passed


async def test_a_loop_that_is_stuck_falls_silent(supervisor: Supervisor) -> None:
    notify = notify_of(supervisor, WATCHDOG_USEC="2000")
    notify.ready()
    supervisor.look()
    supervisor.states.clear()
    with pytest.raises(TimeoutError):  # this blocks the loop
        wait_until(lambda: PING in supervisor.look(), within_s=0.05, what="no ping")
    notify.close()


@pytest.mark.parametrize(
    "more",
    [{"WATCHDOG_USEC": "2000", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "soon"}, {}],
    ids=["of another process", "no number", "none"],
)
async def test_without_a_watchdog_of_ours_there_are_no_pings(
    supervisor: Supervisor, more: dict[str, str]
) -> None:
    notify = notify_of(supervisor, **more)
    notify.ready()
    await one_more_span()
    assert supervisor.look() == [READY]


async def test_a_supervisor_that_is_gone_is_logged_and_stops_nothing(tmp_path: Path) -> None:
    environment = {"NOTIFY_SOCKET": str(tmp_path / "gone"), "WATCHDOG_USEC": "2000"}
    notify = SystemdNotify.of(asyncio.get_running_loop(), environment)
    with capture_logs() as logged:
        notify.ready()
    notify.close()
    assert [line["event"] for line in logged] == ["the supervisor cannot be notified"]


async def test_without_a_supervisor_nothing_happens() -> None:
    notify = SystemdNotify.of(asyncio.get_running_loop(), {"WATCHDOG_USEC": "2000"})
    with capture_logs() as logged:
        notify.ready()
        notify.stopping()
    assert (logged, notify._timer) == ([], None)


def test_a_node_is_ready_pings_and_stops(tmp_path: Path) -> None:
    supervisor = Supervisor(f"@headgate-node-{os.getpid()}")
    env = {
        "NOTIFY_SOCKET": supervisor.path,
        "WATCHDOG_USEC": "60000000",
    }  # the first ping is at once
    with supervisor.socket, Gateway(tmp_path / "data", env=env) as gateway:
        wait_until(lambda: PING in supervisor.look(), within_s=30, what="a ping")
        assert supervisor.states[0] == READY
        assert gateway.http("/readyz")[0] == 200
        gateway.stop()
        assert STOPPING in supervisor.look()
        assert supervisor.states.count(READY) == 1


def test_a_node_that_refuses_to_start_is_never_ready(tmp_path: Path) -> None:
    supervisor = Supervisor(f"@headgate-refusing-{os.getpid()}")
    refused = {"adapters.kafka.bind": "0.0.0.0:0"}
    gateway = Gateway(tmp_path / "data", refused, env={"NOTIFY_SOCKET": supervisor.path})
    with supervisor.socket:
        assert gateway.launch().ended(within_s=60) == 2
        assert supervisor.look() == []


# --- the unit file


def unit() -> configparser.ConfigParser:
    found = configparser.ConfigParser(strict=False, interpolation=None)
    found.optionxform = str  # type: ignore[assignment,method-assign] # keys keep their case
    found.read(UNIT)
    return found


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("systemd-analyze is missing: install systemd")
    program = tmp_path / "headgate"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    copy = tmp_path / UNIT.name
    copy.write_text(
        UNIT.read_text().replace("/opt/headgate/bin/headgate serve", f"{program} serve")
    )
    done = subprocess.run(
        [tool, "verify", "--man=no", copy],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    ours = [line for line in done.stderr.splitlines() if "headgate" in line]
    assert (done.returncode, ours) == (0, [])


def test_the_unit_gives_a_node_time_to_drain_and_starts_no_wrong_settings_again() -> None:
    service = unit()["Service"]
    drain_s_max = NodeConfig.model_fields["drain_s_max"].default
    assert service["Type"] == "notify"
    assert int(service["TimeoutStopSec"]) > drain_s_max
    assert int(service["WatchdogSec"]) > 0
    assert service["Restart"] == "on-failure"
    assert service["RestartPreventExitStatus"] == "2"
