"""A test that leaves a thread fails in its own name, and the thread ends."""

import threading
from collections.abc import Iterator
from unittest.mock import patch

import pytest

from tests.support import leftover_threads
from tests.support.leftover_threads import ThreadWatch

_STOP = threading.Event()


def work() -> None:
    """Go on until ``_STOP``, with looks at it in between."""
    while not _STOP.wait(0.001):
        pass


@pytest.fixture
def thread() -> Iterator[threading.Thread]:
    _STOP.clear()
    found = threading.Thread(target=work, name="goes-on", daemon=True)
    yield found
    _STOP.set()
    found.join(60)


def test_a_thread_that_goes_on_is_named_and_ended(thread: threading.Thread) -> None:
    watch = ThreadWatch(grace_s=0.01)
    watch.keep()

    with pytest.raises(pytest.fail.Exception, match=r"(?s)goes-on.*in work"), watch.ended():
        thread.start()

    assert not thread.is_alive()


def test_a_thread_that_ends_in_time_is_none(thread: threading.Thread) -> None:
    watch = ThreadWatch(grace_s=60)
    watch.keep()

    with watch.ended():
        thread.start()
        _STOP.set()

    assert not thread.is_alive()


def test_threads_of_a_shared_fixture_go_on(thread: threading.Thread) -> None:
    watch = ThreadWatch(grace_s=0.01)
    thread.start()
    watch.keep()

    with watch.ended():
        pass

    assert thread.is_alive()


def test_threads_of_proxies_and_of_libraries_go_on(thread: threading.Thread) -> None:
    watch = ThreadWatch(grace_s=0.01)
    watch.keep()

    with patch.object(leftover_threads, "PROXIES", frozenset({work.__module__})), watch.ended():
        library = threading.Thread(target=_STOP.wait, daemon=True)
        for one in (thread, library):
            one.start()

    assert thread.is_alive()
    assert library.is_alive()


def test_an_error_of_the_block_is_raised_with_a_note(thread: threading.Thread) -> None:
    watch = ThreadWatch(grace_s=0.01)
    watch.keep()

    def fail() -> None:
        with watch.ended():
            thread.start()
            raise ValueError("its own")

    with pytest.raises(ValueError, match="its own") as raised:
        fail()

    assert "goes-on" in raised.value.__notes__[0]
    assert not thread.is_alive()
