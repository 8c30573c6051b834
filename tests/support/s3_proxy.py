"""A proxy in front of an S3 server that does what networks and servers do on bad days.

    with S3Proxy(server.endpoint_url) as proxy:
        rule = proxy.add(Answer(503, "SlowDown"), method="PUT", key=".seg", times=2)

A fault is for requests of a method whose path contains ``key``, ``times`` of them or until the rule
is ``off``; the oldest rule that fits counts. What no rule is for goes to the server as it came.
"""

import contextlib
import http.client
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import BinaryIO, Final, NamedTuple, Self, cast
from urllib.parse import unquote, urlsplit

from gateway.testing.ports import free_port

_UPSTREAM_S_MAX: Final = 60.0
_JOIN_S_MAX: Final = 10.0
_SLICE_S: Final = 0.02  # of a slow body
_OWN_HEADERS: Final = frozenset({"connection", "content-length", "transfer-encoding"})


@dataclass(frozen=True)
class Answer:
    """The server answers an error, and does nothing. ``body``: instead of an error's XML."""

    status: int
    code: str
    body: str | None = None


@dataclass(frozen=True)
class Hang:
    """The server takes the request and says nothing, until the rule is off."""


@dataclass(frozen=True)
class Cut:
    """The connection breaks before the server has the request."""


@dataclass(frozen=True)
class LoseAnswer:
    """The server does it; the connection breaks before it can say so."""


@dataclass(frozen=True)
class CutBody:
    """The answer's body breaks off after so many bytes."""

    after: int


@dataclass(frozen=True)
class SlowBody:
    """The answer's body comes at so many bytes a second."""

    bytes_per_s: int


@dataclass(frozen=True)
class OtherHeaders:
    """The answer has other values in headers, by name in small letters; empty: no such header."""

    values: Mapping[str, str]


@dataclass(frozen=True)
class FlipBody:
    """One byte of the answer's body has another value."""

    at: int = 0


@dataclass(frozen=True)
class FlipSent:
    """One byte of what the server gets has another value."""

    at: int = 0


@dataclass(frozen=True)
class IgnoreRange:
    """The server knows no ranges: its answer is longer than what was asked for, by so much."""

    surplus_bytes: int


Fault = (
    Answer
    | Hang
    | Cut
    | LoseAnswer
    | CutBody
    | SlowBody
    | OtherHeaders
    | FlipBody
    | FlipSent
    | IgnoreRange
)


@dataclass
class Rule:
    """A fault and its requests. ``hits``: how many it has met so far."""

    fault: Fault
    method: str
    key: str
    times: int | None
    hits: int = 0
    _off: threading.Event = field(default_factory=threading.Event)

    def off(self) -> None:
        """Let requests pass from now on; those that hang are cut."""
        self._off.set()

    def wait_off(self, within_s: float | None = None) -> bool:
        """Return whether it is off, at the latest then."""
        return self._off.wait(within_s)

    def takes(self, request: "Request") -> bool:
        """Whether it is for a request, which is counted then."""
        if self._off.is_set() or (self.times is not None and self.hits >= self.times):
            return False
        if self.method not in {"", request.method} or self.key not in unquote(request.path):
            return False
        self.hits += 1
        return True


class Request(NamedTuple):
    """A client's request."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    asked_first: bool


class _Reply(NamedTuple):
    """``size``: what Content-Length says; of an answer to HEAD, whose body is empty."""

    status: int
    reason: str
    headers: list[tuple[str, str]]
    body: bytes
    size: int


class S3Proxy:
    """Listens on a port of its own of 127.0.0.1, from ``with`` to the end of the block."""

    def __init__(self, upstream_url: str) -> None:
        self._upstream = urlsplit(upstream_url).netloc
        self.port = free_port()
        self.requests: list[tuple[str, str]] = []
        self.headers: list[Mapping[str, str]] = []  # of each, by names in small letters
        self.connections = 0  # that clients have made so far
        self.asked_first = 0  # requests with Expect: 100-continue
        self._rules: list[Rule] = []
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener: socket.socket | None = None

    @property
    def url(self) -> str:
        """URL for clients in place of the server's."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self.come_back()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.clear()
        self.go_away()
        for thread in self._threads:
            thread.join(_JOIN_S_MAX)

    def add(
        self, fault: Fault, *, method: str = "", key: str = "", times: int | None = None
    ) -> Rule:
        """Add a rule. ``method`` empty: any; ``key``: what a path with its query contains."""
        rule = Rule(fault, method, key, times)
        with self._lock:
            self._rules.append(rule)
        return rule

    def clear(self) -> None:
        """End all rules."""
        with self._lock:
            rules, self._rules = self._rules, []
        for rule in rules:
            rule.off()

    def count(self, method: str, key: str = "") -> int:
        """Return how many requests of that kind have come."""
        with self._lock:
            return sum(done == method and key in unquote(path) for done, path in self.requests)

    def go_away(self) -> None:
        """Break all connections, and refuse new ones."""
        with self._lock:
            listener, self._listener = self._listener, None
            open_now = list(self._open)
        if listener is not None:
            _break(listener)
        for connection in open_now:
            _break(connection)

    def come_back(self) -> None:
        """Listen, again."""
        listener = socket.create_server(("127.0.0.1", self.port), backlog=128)
        self._listener = listener
        self._start(self._accept, listener)

    def _start(self, work: Callable[[socket.socket], None], connection: socket.socket) -> None:
        thread = threading.Thread(target=work, args=(connection,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # it was closed
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                if self._listener is not listener:
                    _break(connection)
                    return
                self._open.add(connection)
                self.connections += 1
            self._start(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        upstream = http.client.HTTPConnection(self._upstream, timeout=_UPSTREAM_S_MAX)
        try:
            with cast("BinaryIO", connection.makefile("rwb")) as stream:
                while (request := _read_request(stream)) is not None:
                    if not self._answer(request, stream, upstream):
                        break
        except (OSError, ValueError, http.client.HTTPException):
            pass  # one of the two has gone, or was cut
        finally:
            upstream.close()
            with self._lock:
                self._open.discard(connection)
            _break(connection)

    def _answer(
        self, request: Request, stream: BinaryIO, upstream: http.client.HTTPConnection
    ) -> bool:
        """Answer a request. False: the connection is to break."""
        with self._lock:
            self.requests.append((request.method, request.path))
            self.headers.append(request.headers)
            self.asked_first += request.asked_first
            rule = next((rule for rule in self._rules if rule.takes(request)), None)
        fault = None if rule is None else rule.fault
        if isinstance(fault, Answer):
            return _write(stream, request, _error(fault))
        if isinstance(fault, Hang) and rule is not None:
            rule.wait_off()
        if isinstance(fault, (Hang, Cut)):
            return False
        if isinstance(fault, FlipSent):
            request = request._replace(body=_flipped(request.body, fault.at))
        reply = _ask(upstream, request)
        if isinstance(fault, CutBody):
            _write(stream, request, reply._replace(body=reply.body[: fault.after]))
        if isinstance(fault, (LoseAnswer, CutBody)):
            return False
        if isinstance(fault, SlowBody) and rule is not None:
            return _drip(stream, reply, fault.bytes_per_s, rule)
        return _write(stream, request, _spoiled(reply, fault))


def _read_request(stream: BinaryIO) -> Request | None:
    """Read a request with its body; None at the end of the connection."""
    first = stream.readline()
    if not first:
        return None
    method, path, _ = first.decode("latin-1").split(" ", 2)
    headers: dict[str, str] = {}
    while (line := stream.readline().decode("latin-1").rstrip("\r\n")) != "":
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    asked_first = headers.pop("expect", "") == "100-continue"
    if asked_first:
        stream.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        stream.flush()
    body = stream.read(int(headers.get("content-length", 0)))
    return Request(method, path, headers, body, asked_first)


def _ask(upstream: http.client.HTTPConnection, request: Request) -> _Reply:
    """Hand a request on as it came, so that its signature stays good."""
    upstream.putrequest(request.method, request.path, skip_host=True, skip_accept_encoding=True)
    for name, value in request.headers.items():
        upstream.putheader(name, value)
    upstream.endheaders(request.body)
    response = upstream.getresponse()
    body = response.read()
    headers = [
        (name, value)
        for name, value in response.getheaders()
        if name.lower() not in _OWN_HEADERS
    ]
    size = len(body) if request.method != "HEAD" else int(response.headers["Content-Length"])
    return _Reply(response.status, response.reason, headers, body, size)


def _error(answer: Answer) -> _Reply:
    xml = f"<Error><Code>{answer.code}</Code><Message>Said the proxy.</Message></Error>"
    body = (xml if answer.body is None else answer.body).encode()
    reason = HTTPStatus(answer.status).phrase
    headers = [("Content-Type", "application/xml")]
    return _Reply(answer.status, reason, headers, body, len(body))


def _spoiled(reply: _Reply, fault: Fault | None) -> _Reply:
    """Return the answer as a fault makes it that changes what the answer says."""
    match fault:
        case OtherHeaders(values):
            headers = [row for row in reply.headers if row[0].lower() not in values]
            return reply._replace(headers=headers + [row for row in values.items() if row[1]])
        case FlipBody(at):
            return reply._replace(body=_flipped(reply.body, at))
        case IgnoreRange(surplus_bytes):
            headers = [row for row in reply.headers if row[0].lower() != "content-range"]
            body = reply.body + bytes(surplus_bytes)
            return _Reply(HTTPStatus.OK, "OK", headers, body, len(body))
        case _:
            return reply


def _flipped(body: bytes, at: int) -> bytes:
    return body[:at] + bytes([body[at] ^ 0x01]) + body[at + 1 :]


def _head(reply: _Reply) -> bytes:
    lines = [
        f"HTTP/1.1 {reply.status} {reply.reason}",
        *[f"{name}: {value}" for name, value in reply.headers],
        f"Content-Length: {reply.size}",
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _write(stream: BinaryIO, request: Request, reply: _Reply) -> bool:
    stream.write(_head(reply) + (b"" if request.method == "HEAD" else reply.body))
    stream.flush()
    return True


def _drip(stream: BinaryIO, reply: _Reply, bytes_per_s: int, rule: Rule) -> bool:
    """Write the body slowly; all that is left of it once the rule is off."""
    stream.write(_head(reply))
    stream.flush()
    step = max(int(bytes_per_s * _SLICE_S), 1)
    at = 0
    while at < len(reply.body):
        if rule.wait_off(step / bytes_per_s):
            step = len(reply.body)
        stream.write(reply.body[at : at + step])
        stream.flush()
        at += step
    return True


def _break(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads from it
    connection.close()
