"""A gateway of our own as a child process: started, killed, started again, stopped."""

import http.client
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final, Self
from weakref import WeakSet

from gateway.testing.ports import free_port
from gateway.testing.process import Program, ProgramFailed
from tests.support import s3_gateway
from tests.support.waiting import wait_until

ROOT: Final = Path(__file__).resolve().parents[2]
_READY_S_MAX: Final = 60.0
_STOP_S_MAX: Final = 30.0
_LINES_SHOWN: Final = 100

LAUNCHED: Final[WeakSet["Gateway"]] = WeakSet()
"""Those of the test that runs: what they have logged is shown with its failure."""


class Gateway:
    """``python -m gateway serve`` on free ports of 127.0.0.1.

    Restarts keep ports and data. ``settings`` are the keys of ``--set``; ``env`` is added to the
    environment. ``descriptors_max``: arguments of ``ulimit -n`` below which it is started.
    ``HEADGATE_TEST_STORAGE=s3`` puts its data into a bucket.
    """

    module: ClassVar[str] = "gateway"
    """What is run; a benchmark runs the gateway under something that watches it."""

    def __init__(
        self,
        data_dir: Path,
        settings: Mapping[str, object] | None = None,
        *,
        env: Mapping[str, str] | None = None,
        descriptors_max: str = "",
    ) -> None:
        self.descriptors_max = descriptors_max
        self.data_dir = data_dir
        self.kafka_port = free_port()
        self.admin_port = free_port()
        self.settings = {
            "node.data_dir": data_dir,
            "admin.bind": f"127.0.0.1:{self.admin_port}",
            "adapters.kafka.bind": f"127.0.0.1:{self.kafka_port}",
            **(settings or {}),
        }
        self.env = {"PYTHONPATH": str(ROOT), **(env or {})}
        if s3_gateway.IS_ON:
            self.settings = s3_gateway.on_s3(self.settings, data_dir)
            self.env = {**s3_gateway.session_server().env, **self.env}
        self.program: Program | None = None
        self.earlier_lines: list[str] = []

    @property
    def bootstrap(self) -> str:
        """What a Kafka client is given."""
        return f"127.0.0.1:{self.kafka_port}"

    @property
    def is_running(self) -> bool:
        """It was started and has not ended."""
        return self.program is not None and self.program.is_running

    @property
    def pid(self) -> int:
        """The process id of the running gateway."""
        return self._running().pid

    @property
    def lines(self) -> list[str]:
        """What it has logged, its earlier lives included."""
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
            LAUNCHED.discard(self)  # it is shown here, whoever runs it
            sys.stderr.write(f"\n--- gateway:\n{self.tail()}\n---\n")
        else:
            lines = self.lines
            at = next((n for n, line in enumerate(lines) if "closed by a bug" in line), None)
            assert at is None, "\n".join(lines[at:][:_LINES_SHOWN])

    def tail(self) -> str:
        """Return the last lines of its log, to be shown with a failure."""
        return "\n".join(self.lines[-_LINES_SHOWN:])

    def start(self, *, within_s: float = _READY_S_MAX) -> Self:
        """Start it and return when it is ready."""
        self.launch()
        self.wait_ready(within_s=within_s)
        return self

    def launch(self) -> Program:
        """Start it and return at once, ready or not."""
        # A file that names adapters starts only those: no other takes its usual port.
        names = {key.split(".")[1] for key in self.settings if key.startswith("adapters.")}
        config = self.data_dir.with_name(f"{self.data_dir.name}.toml")
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text("".join(f"[adapters.{name}]\n" for name in sorted(names)))
        assignments = [f"--set={key}={value}" for key, value in self.settings.items()]
        LAUNCHED.add(self)
        command = [
            sys.executable,
            "-m",
            self.module,
            "serve",
            f"--config={config}",
            *assignments,
        ]
        if self.descriptors_max:
            limited = f'ulimit {self.descriptors_max}; exec "$@"'
            command = ["/bin/sh", "-c", limited, "sh", *command]
        self.program = Program(command, cwd=ROOT, env=self.env)
        return self.program

    def wait_ready(self, *, within_s: float = _READY_S_MAX) -> None:
        """Return when it says of itself that it is ready."""
        program = self._running()
        try:
            wait_until(
                lambda: not program.is_running or self.http("/readyz")[0] == http.client.OK,
                within_s=within_s,
                what="/readyz",
            )
        except TimeoutError as error:
            self.kill()
            msg = f"{error}\n{program.tail()}"
            raise ProgramFailed(msg) from None
        if not program.is_running:
            self.kill()
            msg = f"the gateway ended with {program.process.returncode}\n{program.tail()}"
            raise ProgramFailed(msg)

    def http(self, path: str) -> tuple[int, str]:
        """GET a path of the admin endpoint: (status, body), status 0 when nobody listens."""
        connection = http.client.HTTPConnection("127.0.0.1", self.admin_port, timeout=5)
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

    def kill(self) -> None:
        """End it without warning (SIGKILL)."""
        self._end(self._running().kill)

    def restart(self) -> Self:
        """Start it again on the same ports and data."""
        return self.start()

    def stop(self) -> None:
        """Ask it to drain and end (SIGTERM); its exit status must be 0."""
        program = self._running()
        status = program.stop(within_s=_STOP_S_MAX)
        self.earlier_lines += program.lines
        self.program = None
        assert status == 0, f"exit status {status}\n{program.tail()}"

    def run_command(self, *arguments: str, within_s: float = 60) -> list[str]:
        """Run ``headgate <arguments>`` to its end (status 0) and return its lines."""
        command = [sys.executable, "-m", "gateway", *arguments]
        return Program(command, cwd=ROOT, env=self.env).finish(within_s=within_s)

    def _end(self, how: object) -> None:
        program = self._running()
        how()  # type: ignore[operator]  # a bound method without arguments
        self.earlier_lines += program.lines
        self.program = None

    def _running(self) -> Program:
        assert self.program is not None, "the gateway was not started"
        return self.program
