"""A program of ours or a peer's as a child process whose output is read as it comes."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

_LINES_SHOWN: Final = 60
_STOP_S_MAX: Final = 30.0


class ProgramFailed(Exception):
    """The program ended, or did not do in time what was waited for; shows its last lines."""


class Program:
    """A running child. Its output (standard error included) is in ``lines``, and grows."""

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        merge_errors: bool = True,
    ) -> None:
        self.command = [str(part) for part in command]
        self.lines: list[str] = []
        self.error_lines: list[str] = []
        self._changed = threading.Condition()
        self.process = subprocess.Popen(
            self.command,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if merge_errors else subprocess.PIPE,
            text=True,
            errors="replace",
        )
        self._threads = [self._follow(self.process.stdout, self.lines)]
        if not merge_errors:
            self._threads.append(self._follow(self.process.stderr, self.error_lines))

    def _follow(self, stream: object, lines: list[str]) -> threading.Thread:
        thread = threading.Thread(target=self._collect, args=(stream, lines), daemon=True)
        thread.start()
        return thread

    def _collect(self, stream: object, lines: list[str]) -> None:
        for line in stream:  # type: ignore[attr-defined]  # an open text pipe
            with self._changed:
                lines.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self.process.pid

    @property
    def is_running(self) -> bool:
        """The child has not ended."""
        return self.process.poll() is None

    def wait_for(self, condition: Callable[[], bool], *, within_s: float, what: str) -> None:
        """Return once ``condition`` holds; it is looked at whenever a line comes."""
        deadline = time.monotonic() + within_s
        with self._changed:
            while not condition():
                left_s = deadline - time.monotonic()
                if left_s <= 0 or not self._is_followed():
                    break
                self._changed.wait(min(left_s, 0.5))
            if condition():
                return
        state = "is running" if self.is_running else f"ended with {self.process.returncode}"
        msg = f"not within {within_s} s: {what}; {self.command[:4]} {state}\n{self.tail()}"
        raise ProgramFailed(msg)

    def _is_followed(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def wait_for_line(self, text: str, *, within_s: float) -> str:
        """Return the first line that contains ``text``."""
        self.wait_for(
            lambda: any(text in line for line in self.lines),
            within_s=within_s,
            what=f"a line with {text!r}",
        )
        return next(line for line in self.lines if text in line)

    def tail(self) -> str:
        """Return the last lines of the output, to be shown with a failure."""
        return "\n".join([*self.lines[-_LINES_SHOWN:], *self.error_lines[-_LINES_SHOWN:]])

    def kill(self) -> None:
        """End it as a power switch would (SIGKILL), and wait until it is gone."""
        self.process.kill()
        self._gone(_STOP_S_MAX)

    def stop(self, *, within_s: float = _STOP_S_MAX) -> int:
        """Ask it to end (SIGTERM) and return its exit status; killed when it does not."""
        if self.is_running:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self._gone(within_s)
        except subprocess.TimeoutExpired:
            self.kill()
            msg = f"{self.command[:4]} did not stop within {within_s} s\n{self.tail()}"
            raise ProgramFailed(msg) from None

    def ended(self, *, within_s: float) -> int:
        """Wait for its own end and return its exit status."""
        return self._gone(within_s)

    def finish(self, *, within_s: float) -> list[str]:
        """Wait for its own end with exit status 0 and return its output's lines."""
        try:
            status = self._gone(within_s)
        except subprocess.TimeoutExpired:
            self.kill()
            msg = f"{self.command[:4]} did not end within {within_s} s\n{self.tail()}"
            raise ProgramFailed(msg) from None
        if status != 0:
            msg = f"{self.command[:4]} ended with {status}\n{self.tail()}"
            raise ProgramFailed(msg)
        return self.lines

    def _gone(self, within_s: float) -> int:
        status = self.process.wait(within_s)
        for thread in self._threads:
            thread.join(_STOP_S_MAX)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        return status
