"""Gateways whose disk is a bucket: killed with their machine, cut off from bucket or database."""

import contextlib
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Final, Self

from sqlalchemy.engine import make_url

from gateway.testing.ports import free_port
from tests.crash.load import Load
from tests.support.gateway import Gateway
from tests.support.s3_servers import S3Server

# Small enough that objects are merged, dead ones deleted, and answers given soon.
SETTINGS: Final = {
    "storage.flush_interval_ms": 20,
    "storage.connect_timeout_ms": 1_000,
    "storage.request_timeout_ms": 1_000,
    "storage.retry_ms_max": 1_000,
    "storage.merge_objects_min": 8,
    "storage.merge_after_ms": 500,
    "storage.sweep_interval_ms": 300,
    "storage.delete_after_ms": 2_000,
    "storage.tail_cache_bytes": 1 << 20,
    "storage.memory_cache_bytes": 1 << 20,
}
_DATABASE: Final = "metadata.sqlite"
_BYTES_MAX: Final = 1 << 16
_JOIN_S_MAX: Final = 10.0


def s3_settings(
    server: S3Server, bucket: str, *, endpoint_url: str = "", metadata_url: str = ""
) -> dict[str, object]:
    """Return the settings of a gateway over a bucket; SQLite unless a URL is given."""
    settings = {**server.settings(), **SETTINGS, "storage.bucket": bucket}
    if endpoint_url:
        settings["storage.endpoint_url"] = endpoint_url
    if metadata_url:
        settings["metadata.url"] = metadata_url
    return settings


def lose_disk(gateway: Gateway, *, keeps_database: bool) -> None:
    """Take away what a dead gateway had on its disk; the database's file may be elsewhere."""
    for path in gateway.data_dir.iterdir():
        if keeps_database and path.name.startswith(_DATABASE):
            continue
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def abandon(load: Load) -> None:
    """End a load whose gateway is gone for good: what is not answered stays so."""
    load._stop.set()
    load._thread.join()
    load._producer.purge()
    load._producer.flush(0)


class Gate:
    """A way to a TCP server that can be shut, and every connection of which can be broken."""

    def __init__(self, upstream: tuple[str, int]) -> None:
        self._upstream = upstream
        self.port = free_port()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener: socket.socket | None = None

    def __enter__(self) -> Self:
        self.come_back()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.go_away()

    def go_away(self) -> None:
        """Break all connections, and refuse new ones."""
        with self._lock:
            listener, self._listener = self._listener, None
        if listener is not None:
            _break(listener)
        self.break_all()

    def break_all(self) -> None:
        """Break the connections of this moment."""
        with self._lock:
            found, self._open = self._open, set()
        for one in found:
            _break(one)

    def come_back(self) -> None:
        """Listen, again."""
        listener = socket.create_server(("127.0.0.1", self.port), backlog=64)
        self._listener = listener
        _start(self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
                far = socket.create_connection(self._upstream)
            except OSError:  # it was closed
                return
            with self._lock:
                if self._listener is not listener:
                    _break(near)
                    _break(far)
                    return
                self._open |= {near, far}
            _start(self._forward, near, far)
            _start(self._forward, far, near)

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_BYTES_MAX):
                target.sendall(data)
        with self._lock:
            self._open -= {source, target}
        _break(source)
        _break(target)


def _start(work: Callable[..., None], *args: socket.socket) -> None:
    threading.Thread(target=work, args=args, daemon=True).start()


def _break(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


@contextlib.contextmanager
def gated(url: str) -> Iterator[tuple[Gate, str]]:
    """Give a way to a database, and the URL that goes it."""
    parsed = make_url(url)
    assert parsed.host is not None
    assert parsed.port is not None
    with Gate((parsed.host, parsed.port)) as gate:
        yield gate, parsed.set(port=gate.port).render_as_string(hide_password=False)


@contextlib.contextmanager
def new_database(url: str, name: str) -> Iterator[str]:
    """Make a database of the server, and give its URL."""
    import psycopg

    parsed = make_url(url)
    plain = parsed.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    yield parsed.set(database=name).render_as_string(hide_password=False)
