"""Hostile clients in a process of their own, which ends by a deadline whatever the peer does."""

import json
import sys
import time
from typing import Any, Final, Self

from gateway.testing.process import Program, ProgramFailed
from tests.support.hostile.throwing import seconds_max
from tests.support.hostile.users import User
from tests.support.toolchain import ROOT

_END_S_MAX: Final = (
    60.0  # beyond the clients' own deadline, after which they say where they are
)


class HostileLoad:
    """Sends packets until it is left, or all are sent. Error: ``ProgramFailed``."""

    def __init__(
        self, protocol: str, port: int, packets: int, seed: int, user: User | None
    ) -> None:
        self._command = [sys.executable, "-m", "benchmarks.clients.hostile_load", protocol]
        self._command += ["--port", f"{port}", "--packets", f"{packets}", "--seed", f"{seed}"]
        if user is not None:
            self._command += ["--user", *user]
        self._s_max = seconds_max(packets) + _END_S_MAX
        self._program: Program
        self._deadline_s = 0.0

    def __enter__(self) -> Self:
        self._deadline_s = time.monotonic() + self._s_max
        self._program = Program(self._command, cwd=ROOT, merge_errors=False)
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._program.is_running:
            self._program.kill()

    @property
    def is_running(self) -> bool:
        """Packets are being sent. Error: ``ProgramFailed`` after the deadline."""
        if self._program.is_running and time.monotonic() > self._deadline_s:
            msg = f"{self._command[3:]} did not end within {self._s_max:.0f} s"
            raise ProgramFailed(f"{msg}\n{self._program.tail()}")
        return self._program.is_running

    def result(self) -> dict[str, Any]:
        """Return what the clients counted."""
        lines = self._program.finish(within_s=_END_S_MAX)
        found: dict[str, Any] = json.loads(lines[-1])
        return found
