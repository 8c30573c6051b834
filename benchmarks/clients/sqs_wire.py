"""SQS requests as bytes, signed with SigV4, and the answers to them, over plain sockets.

A load generator must cost less than what it measures: botocore takes 50 us to sign a request.
"""

import hashlib
import hmac
import json
import select
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

HOST: Final = "127.0.0.1"
ANY_KEY: Final = "AKIAANYBODY:any-secret"  # for servers that check no signature
REGION: Final = "us-east-1"
ANSWER_S_MAX: Final = 60.0
_HEADERS_END: Final = b"\r\n\r\n"
_SIGNED: Final = "content-type;host;x-amz-date;x-amz-target"
_RECEIVE_BYTES: Final = 1 << 18


class SqsFault(Exception):
    """The server did not do what the measurement needs."""


class Signer:
    """Makes whole requests for one server. ``key``: an access key's id, ``:``, its secret."""

    def __init__(self, port: int, key: str) -> None:
        self._key_id, self._secret = key.split(":")
        self._host = f"{HOST}:{port}"
        self._day = ""
        self._key = b""

    def request(self, action: str, body: bytes) -> bytes:
        """Return the bytes of one request of the JSON protocol."""
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        day = stamp[:8]
        if day != self._day:
            self._day, self._key = day, _signing_key(self._secret, day)
        scope = f"{day}/{REGION}/sqs/aws4_request"
        canonical = (
            f"POST\n/\n\ncontent-type:application/x-amz-json-1.0\nhost:{self._host}\n"
            f"x-amz-date:{stamp}\nx-amz-target:AmazonSQS.{action}\n\n{_SIGNED}\n"
            f"{hashlib.sha256(body).hexdigest()}"
        )
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        to_sign = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{digest}"
        signature = hmac.digest(self._key, to_sign.encode(), "sha256").hex()
        return (
            f"POST / HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: application/x-amz-json-1.0\r\n"
            f"X-Amz-Target: AmazonSQS.{action}\r\nX-Amz-Date: {stamp}\r\n"
            f"Authorization: AWS4-HMAC-SHA256 Credential={self._key_id}/{scope}, "
            f"SignedHeaders={_SIGNED}, Signature={signature}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        ).encode() + body


def _signing_key(secret: str, day: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in (day, REGION, "sqs", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


class Channel:
    """One connection with one request at a time; opened anew where the server closes each."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._data = b""
        self.sock = open_socket(port)

    def next(self) -> bytes | None:
        """Return the body of one answer, None when it has not come whole. Error: ``SqsFault``."""
        raw = self.sock.recv(_RECEIVE_BYTES)
        if not raw:
            raise SqsFault("the server closed the connection")
        data = self._data = self._data + raw if self._data else raw
        end = data.find(_HEADERS_END)
        if end < 0:
            return None
        head = data[:end].lower()
        at = head.find(b"content-length:")
        if at < 0:
            raise SqsFault(f"an answer without its length: {head[:200]!r}")
        line_end = head.find(b"\r", at)
        length = int(head[at + 15 : line_end if line_end > 0 else end])
        start = end + len(_HEADERS_END)
        if len(data) < start + length:
            return None
        if not data.startswith(b"HTTP/1.1 200"):
            raise SqsFault(data[: start + length][:1000].decode())
        self._data = b""
        if b"connection: close" in head:
            self.sock.close()
            self.sock = open_socket(self._port)
        return data[start : start + length]


def open_socket(port: int) -> socket.socket:
    """Return a connection that waits for answers, but not for ever."""
    sock = socket.create_connection((HOST, port), timeout=ANSWER_S_MAX)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def take_turns(
    port: int, first: Sequence[bytes], next_request: Callable[[int, bytes], bytes | None]
) -> None:
    """Keep one request on its way on each of as many connections as there are first ones.

    ``next_request(connection, answer)`` says what follows; None ends that connection's turns.
    Error: ``SqsFault``.
    """
    poll = select.epoll()
    channels = [Channel(port) for _ in first]
    numbers = {}
    for number, channel in enumerate(channels):
        numbers[channel.sock.fileno()] = number
        poll.register(channel.sock, select.EPOLLIN)
        channel.sock.sendall(first[number])
    waiting = len(channels)
    while waiting:
        events = poll.poll(ANSWER_S_MAX)
        if not events:
            raise SqsFault(f"{waiting} requests not answered")
        for descriptor, _event in events:
            number = numbers[descriptor]
            channel = channels[number]
            sock = channel.sock
            body = channel.next()
            if body is None:
                continue
            if channel.sock is not sock:
                numbers[channel.sock.fileno()] = number
                poll.register(channel.sock, select.EPOLLIN)
            request = next_request(number, body)
            if request is None:
                waiting -= 1
            else:
                channel.sock.sendall(request)
    for channel in channels:
        channel.sock.close()


def ask(port: int, key: str, action: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to one request on a connection of its own."""
    channel = Channel(port)
    channel.sock.sendall(Signer(port, key).request(action, json.dumps(params).encode()))
    while (body := channel.next()) is None:
        pass
    channel.sock.close()
    found: dict[str, Any] = json.loads(body) if body else {}
    return found


def make_queue(port: int, key: str, name: str, **attributes: str) -> str:
    """Return the URL of a new queue."""
    asked = {"QueueName": name, "Attributes": attributes}
    return str(ask(port, key, "CreateQueue", asked)["QueueUrl"])


def bodies(url: str, *, message_bytes: int, batch: int, count: int) -> Sequence[bytes]:
    """Return ``count`` different bodies of SendMessage, or of SendMessageBatch above 1."""
    texts = [f"{number:08d}".ljust(message_bytes, "x") for number in range(count * batch)]
    if batch == 1:
        return [json.dumps({"QueueUrl": url, "MessageBody": text}).encode() for text in texts]
    return [
        json.dumps(
            {
                "QueueUrl": url,
                "Entries": [
                    {"Id": str(place), "MessageBody": texts[number * batch + place]}
                    for place in range(batch)
                ],
            }
        ).encode()
        for number in range(count)
    ]
