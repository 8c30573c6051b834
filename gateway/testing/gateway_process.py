"""A gateway as a child process: started, killed, started again, stopped."""

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final, Self

from gateway.testing.ports import free_port
from gateway.testing.process import Program, ProgramFailed

READY_S_MAX: Final = 180.0
STOP_S_MAX: Final = 30.0
_LINES_SHOWN: Final = 100


class GatewayProcess:
    """``headgate serve`` with a config file of its own, on ports of 127.0.0.1 of its own.

    ``adapters`` are the protocols that it starts; each has its port in ``ports``. ``settings`` are
    further keys of the config file, dotted: ``{"storage.adapter": "drawer"}``. The file, and the
    data in ``data``, are in ``folder``. Restarts keep ports and data. ``env`` is added to the
    environment.
    """

    module: ClassVar[str] = "gateway"
    """Module that is run."""

    def __init__(
        self,
        folder: Path,
        adapters: Iterable[str],
        settings: Mapping[str, object] | None = None,
        *,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.ports = {name: free_port() for name in adapters}
        self.admin_port = free_port()
        self.folder = folder
        self.data_dir = folder / "data"
        self.config_file = folder / "headgate.toml"
        self.settings: dict[str, object] = {
            "node.data_dir": self.data_dir,
            "admin.bind": f"127.0.0.1:{self.admin_port}",
            **{f"adapters.{name}.bind": f"127.0.0.1:{n}" for name, n in self.ports.items()},
            **(settings or {}),
        }
        self.env = dict(env or {})
        self.program: Program | None = None
        self.earlier_lines: list[str] = []

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self.program is not None and self.program.is_running

    @property
    def pid(self) -> int:
        """The process id of the running gateway."""
        return self._running().pid

    @property
    def lines(self) -> list[str]:
        """Lines that it has logged, its earlier lives included."""
        return self.earlier_lines + (self.program.lines if self.program else [])

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: object, *_exc: object) -> None:
        if self.program is not None:
            if kind is None and self.program.is_running:
                self.stop()
            else:
                self.program.kill()  # also closes the pipes of one that has ended
        if kind is not None:
            sys.stderr.write(f"\n--- gateway:\n{self.tail()}\n---\n")
        else:
            lines = self.lines
            at = next((n for n, line in enumerate(lines) if "closed by a bug" in line), None)
            assert at is None, "\n".join(lines[at:][:_LINES_SHOWN])

    def tail(self) -> str:
        """Return the last lines of its log, to be shown with a failure."""
        return "\n".join(self.lines[-_LINES_SHOWN:])

    def start(self, *, within_s: float = READY_S_MAX) -> Self:
        """Start it and return when it is ready. Errors: ``ProgramFailed`` with its last lines."""
        self.launch()
        self.wait_ready(within_s=within_s)
        return self

    def launch(self) -> Program:
        """Start it and return at once, ready or not."""
        self.program = Program(self._serve_command(), cwd=self._folder(), env=self.env)
        return self.program

    def wait_ready(self, *, within_s: float = READY_S_MAX) -> None:
        """Return when it says of itself that it is ready. Errors: ``ProgramFailed``."""
        try:
            self._running().wait_for_line("headgate ready", within_s=within_s)
        except ProgramFailed:
            self.kill()
            raise

    def kill(self) -> None:
        """End it without warning (SIGKILL)."""
        program = self._running()
        program.kill()
        self._forget(program)

    def restart(self) -> Self:
        """Start it again on the same ports and data."""
        return self.start()

    def stop(self) -> None:
        """Ask it to drain and end (SIGTERM); its exit status must be 0."""
        program = self._running()
        status = program.stop(within_s=STOP_S_MAX)
        self._forget(program)
        assert status == 0, f"exit status {status}\n{program.tail()}"

    def run_command(self, *arguments: str, typed: str = "", within_s: float = 60) -> list[str]:
        """Run ``headgate <arguments>`` to its end (status 0) and return its output's lines.

        ``typed`` is its standard input. Error: ``ProgramFailed``.
        """
        done = subprocess.run(
            self._command(*arguments),
            cwd=self._folder(),
            env={**os.environ, **self.env},
            input=typed,
            capture_output=True,
            text=True,
            check=False,
            timeout=within_s,
        )
        if done.returncode != 0:
            msg = f"{arguments} ended with {done.returncode}\n{done.stdout}{done.stderr}"
            raise ProgramFailed(msg)
        return done.stdout.splitlines()

    def add_user(self, name: str, password: str) -> None:
        """Add a user; from the first one on, clients must log in."""
        self.run_command("users", "add", name, "--password-stdin", typed=f"{password}\n")

    def http(self, path: str) -> tuple[int, str]:
        """GET a path of the admin endpoint: (status, body), status 0 when nobody listens."""
        connection = http.client.HTTPConnection("127.0.0.1", self.admin_port, timeout=30)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        except OSError:
            return 0, ""
        finally:
            connection.close()

    def metric(self, name: str) -> float:
        """Return the sum of a metric over its labels."""
        rows = [line.rsplit(" ", 1) for line in self.http("/metrics")[1].splitlines()]
        return sum(float(row[1]) for row in rows if row[0].split("{")[0] == name)

    def _command(self, *arguments: str) -> Sequence[str]:
        return [sys.executable, "-m", "gateway", *arguments, f"--config={self._config()}"]

    def _serve_command(self) -> Sequence[str]:
        return [sys.executable, "-m", self.module, "serve", f"--config={self._config()}"]

    def _config(self) -> Path:
        """Return the config file, written anew."""
        text = "".join(f"{key} = {to_toml(value)}\n" for key, value in self.settings.items())
        self._folder().mkdir(parents=True, exist_ok=True)
        self.config_file.write_text(text, encoding="utf-8")
        return self.config_file

    def _folder(self) -> Path:
        """Return the folder in which it runs."""
        return self.folder

    def _forget(self, program: Program) -> None:
        self.earlier_lines += program.lines
        self.program = None

    def _running(self) -> Program:
        assert self.program is not None, "the gateway was not started"
        return self.program


def to_toml(value: object) -> str:
    r"""Return a setting as a TOML value; what is no table, list, number or boolean is text.

    >>> to_toml([{"filter": "a/#", "is_on": True}, 5])
    '[{filter = "a/#", is_on = true}, 5]'
    """
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {to_toml(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(to_toml, value)) + "]"
    is_plain = isinstance(value, bool | int | float)
    return json.dumps(value if is_plain else str(value), ensure_ascii=False)
