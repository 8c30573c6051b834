"""Threads that a test leaves behind: the test fails, and they end before the next one begins.

A client that goes on in a thread draws from the global ``random`` while Hypothesis runs other
tests of the worker, which then fail in the place of the test that left it.
"""

import ctypes
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from unittest.mock import patch
from weakref import WeakSet

import pytest

_GRACE_S: Final = 5.0
_END_S_MAX: Final = 10.0

PROXIES: Final = frozenset({"tests.crash.s3_gateways", "tests.support.s3_proxy"})
"""Modules whose threads end with the connections that they relay, those of other tests too."""


class ThreadWatch:
    """Watch over the threads that tests start.

    Threads of libraries, of executors and of fixtures that several tests share may go on.
    """

    def __init__(self, *, grace_s: float = _GRACE_S) -> None:
        self._grace_s = grace_s
        self._kept: WeakSet[threading.Thread] = WeakSet()

    def keep(self) -> None:
        """Let the threads of this moment go on."""
        self._kept.update(threading.enumerate())

    @contextmanager
    def ended(self) -> Iterator[None]:
        """Fail the test whose threads go on after the block, and end them."""
        try:
            yield
        except BaseException as error:
            if report := self._end_left():
                error.add_note(report)
            raise
        if report := self._end_left():
            pytest.fail(report, pytrace=False)

    def _end_left(self) -> str:
        """End the threads that are left; return what to say about them, nothing without any."""
        left = self._left()
        if not left:
            return ""
        report = "\n".join(["the test leaves threads that go on:", *map(describe, left)])
        end(left)
        return report

    def _left(self) -> list[threading.Thread]:
        """Return the test's threads that are alive after a time of grace for all together."""
        found = [one for one in threading.enumerate() if one not in self._kept and is_ours(one)]
        deadline_s = time.monotonic() + self._grace_s
        for thread in found:
            thread.join(max(0.0, deadline_s - time.monotonic()))
        return [thread for thread in found if thread.is_alive()]


def is_ours(thread: threading.Thread) -> bool:
    """Return whether a thread runs code of the tests, from its first function on."""
    work = getattr(thread, "_target", None) or type(thread)
    module: str = getattr(work, "__module__", None) or ""
    return module.startswith("tests.") and module not in PROXIES


def describe(thread: threading.Thread) -> str:
    """Return a thread's name and the place where it is."""
    frame = sys._current_frames().get(thread.ident or 0)
    return f"{thread.name}\n{''.join(traceback.format_stack(frame)) if frame else ''}"


def end(threads: list[threading.Thread]) -> None:
    """Raise ``SystemExit`` in threads and wait for them, up to a bound.

    One that waits in a system call without a timeout goes on until the call returns.
    """
    with patch.object(threading, "excepthook", lambda _: None):  # pytest's makes it a warning
        for thread in threads:
            ident = ctypes.c_ulong(thread.ident or 0)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(SystemExit))
        deadline_s = time.monotonic() + _END_S_MAX
        for thread in threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))
