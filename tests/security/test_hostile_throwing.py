"""The hostile clients of the tests and of benchmark L2 end, whatever the peer does."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from tests.support.hostile import mqtt, throwing
from tests.support.hostile.throwing import Speech, StoodStill, say, throw

PINGRESP = b"\xd0\x00"


class Peer:
    """Answers a connection with ``said`` again and again; notes where it came from."""

    def __init__(self, said: bytes) -> None:
        self._said = said
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.port = int(self._listener.getsockname()[1])
        self.hosts: list[str] = []
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            connection, (host, _) = self._listener.accept()
            self.hosts.append(host)
            with connection, suppress(OSError):
                while not self._stop.wait(0.02):
                    connection.sendall(self._said)

    def close(self) -> None:
        self._stop.set()
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port)).close()
        self._thread.join(30)
        self._listener.close()


@contextmanager
def peer_that_says(said: bytes) -> Iterator[Peer]:
    peer = Peer(said)
    try:
        yield peer
    finally:
        peer.close()


@pytest.mark.timeout(60)
def test_a_peer_that_never_is_silent_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A subscriber whose own packet never ends gets what others publish for ever."""
    monkeypatch.setattr(throwing, "CONNECTION_S_MAX", 1.0)
    with peer_that_says(b"\x30\x05\x00\x01xhi") as peer:
        assert not say(peer.port, b"hello", mqtt.is_answered)


@pytest.mark.timeout(60)
def test_an_answer_is_seen_in_front_of_other_packets() -> None:
    with peer_that_says(PINGRESP + b"\x30\x05\x00\x01xhi") as peer:
        assert say(peer.port, b"hello", mqtt.is_answered)


def test_hostile_clients_have_an_address_of_their_own() -> None:
    with peer_that_says(PINGRESP) as peer:
        say(peer.port, b"hello", mqtt.is_answered)
        assert peer.hosts == ["127.0.0.2"]


@pytest.mark.timeout(60)
def test_packets_that_take_too_long_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throwing, "CONNECTION_S_MAX", 0.1)
    monkeypatch.setattr(throwing, "START_S_MAX", 0.1)
    speech = Speech(lambda _chooser: [b"x"], lambda _tail: False)
    with peer_that_says(b"x") as peer, pytest.raises(StoodStill, match=r"0 of .* answered"):
        throw(peer.port, speech, packets=80, seed=1)
