"""Ports that tests give their servers: no two tests of a machine are given the same."""

import subprocess
import sys

import pytest

from gateway.testing import ports

HOLD = "import gateway.testing.ports as p; print(p.free_port(), flush=True); input()"


def test_a_port_is_given_once_while_its_process_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", HOLD], stdin=pipe, stdout=pipe) as other:
        assert other.stdout is not None
        port = int(other.stdout.readline())
        monkeypatch.setattr(ports, "_PORTS", range(port, port + 1))
        with pytest.raises(OSError, match="no free port"):
            ports.free_port()

    assert ports.free_port() == port
    with pytest.raises(OSError, match="no free port"):
        ports.free_port()
