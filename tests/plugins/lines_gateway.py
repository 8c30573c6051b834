"""A gateway process with the example's protocol and storage, and a client of that protocol."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

from gateway.testing.process import Program

_ROOT: Final = Path(__file__).resolve().parents[2]
_START_S_MAX: Final = 60.0
_ANSWER_S_MAX: Final = 60.0

CONFIG: Final = """
[node]
data_dir = "{data_dir}"
[admin]
bind = "127.0.0.1:0"
[storage]
adapter = "drawer"
[adapters.lines]
bind = "127.0.0.1:0"
line_bytes_max = 1000
"""


class Client:
    """Sends lines and reads lines."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_ANSWER_S_MAX)
        self._file = self._socket.makefile("rb")

    def send(self, *lines: str) -> None:
        """Send lines in one write."""
        self.send_data("".join(f"{line}\n" for line in lines).encode())

    def send_data(self, data: bytes) -> None:
        """Send what may not be lines at all."""
        self._socket.sendall(data)

    def line(self) -> str:
        """Return the next line; empty when the gateway has closed the connection."""
        return self._file.readline().decode().rstrip("\n")

    def ask(self, line: str) -> str:
        """Send a line and return the answer."""
        self.send(line)
        return self.line()

    def close(self) -> None:
        """Hang up."""
        self._file.close()
        self._socket.close()


class LinesGateway:
    """Starts and restarts the process; its ports are the system's choice each time."""

    def __init__(self, site: Path, folder: Path) -> None:
        self.data_dir = folder / "data"
        self.config = folder / "headgate.toml"
        self.config.write_text(CONFIG.format(data_dir=self.data_dir))
        self._site = site
        self.program: Program
        self.port = 0
        self._clients: list[Client] = []

    def start(self) -> None:
        """Start it, and return when it says where it listens."""
        self.program = self.command("serve", "--config", str(self.config))
        line = self.program.wait_for_line("headgate ready", within_s=_START_S_MAX)
        match = re.search(r"lines tcp://127\.0\.0\.1:(\d+)", line)
        assert match, line
        self.port = int(match[1])

    def command(self, *arguments: str) -> Program:
        """Run a headgate command with the example installed."""
        return Program(
            [sys.executable, "-m", "gateway", *arguments],
            cwd=self.config.parent,
            env={"PYTHONPATH": f"{self._site}:{_ROOT}"},
        )

    def add_user(self, name: str, password: str) -> int:
        """Run ``headgate users add`` with the password on standard input; its exit status."""
        return subprocess.run(
            [
                *(sys.executable, "-m", "gateway", "users", "add", name, "--password-stdin"),
                *("--config", str(self.config)),
            ],
            cwd=self.config.parent,
            env={**os.environ, "PYTHONPATH": f"{self._site}:{_ROOT}"},
            input=f"{password}\n".encode(),
            check=False,
            timeout=_START_S_MAX,
        ).returncode

    def client(self) -> Client:
        """Return a new connection."""
        self._clients.append(Client(self.port))
        return self._clients[-1]

    def close(self) -> None:
        """End the process and all connections to it."""
        for client in self._clients:
            client.close()
        self.program.kill()
