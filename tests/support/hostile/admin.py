"""Faulty requests to the admin endpoint, with its token, a wrong one or none."""

import json
import random
from typing import Any, Final

from tests.support.hostile import sqs
from tests.support.hostile.users import User

REQUESTS_PER_CONNECTION: Final = 8  # most faults end the connection
_CLOSE: Final = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
_NAMES: Final = ("fuzz-0", "fuzz-1", "fuzz.fifo", "%00", "..", "%2e%2e%2fetc", "x" * 300, "")
_RULE: Final = {
    "effect": "deny",
    "operation": "all",
    "resource": "topic",
    "pattern": "literal",
    "name": "fuzz-0",
    "principal": "fuzz-0",
}
_CALLS: Final[tuple[tuple[str, str, Any], ...]] = (
    ("GET", "node", None),
    ("GET", "clients", None),
    ("GET", "topics", None),
    ("POST", "topics", {"name": "fuzz-0", "partitions": 1, "configs": {}}),
    ("GET", "topics/{name}", None),
    ("DELETE", "topics/{name}", None),
    ("PATCH", "topics/{name}/configs", {"changes": {"retention.ms": "1000"}}),
    ("POST", "topics/{name}/partitions", {"total": 2}),
    ("POST", "topics/{name}/find", {"key": "k"}),
    ("GET", "groups", None),
    ("GET", "groups/{name}", None),
    ("DELETE", "groups/{name}", None),
    ("POST", "groups/{name}/offsets", {"topic": "fuzz-0", "partition": 0}),
    ("GET", "queues", None),
    ("POST", "queues", {"name": "fuzz-1"}),
    ("GET", "queues/{name}", None),
    ("PATCH", "queues/{name}", {"settings": {"visibility_timeout_s": 1}}),
    ("DELETE", "queues/{name}", None),
    ("POST", "queues/{name}/purge", None),
    ("GET", "dlq", None),
    ("GET", "dlq/{name}/messages?count=5", None),
    ("POST", "dlq/{name}/redrives", {"destination": "fuzz-0"}),
    ("POST", "dlq/{name}/purge", None),
    ("GET", "users", None),
    ("PUT", "users/{name}", {"password": "p"}),
    ("DELETE", "users/{name}", None),
    ("GET", "users/{name}/keys", None),
    ("GET", "access-keys", None),
    ("DELETE", "access-keys/{name}", None),
    ("GET", "rules", None),
    ("POST", "rules", _RULE),
    ("DELETE", "rules?effect=deny&operation=all&resource=topic&pattern=literal", None),
    ("GET", "scrub", None),
)


def words(chooser: random.Random, user: User | None) -> list[bytes]:
    """Return the requests of a connection; the last of them closes it."""
    said = [_request(chooser, user) for _ in range(REQUESTS_PER_CONNECTION - 1)]
    return [*said, _CLOSE]


def _request(chooser: random.Random, user: User | None) -> bytes:
    kind = chooser.randrange(10)
    if kind == 0:
        return sqs.wrong_http(chooser)
    method, path, body = chooser.choice(_CALLS)
    if body is not None and kind < 5:
        at = chooser.choice(sorted(body)) if body else ""
        body = {**body, at: sqs.other_value(body.get(at), chooser)}
    token = user.password if user else chooser.choice(["", "wrong", "\xff"])
    raw = b"" if body is None else json.dumps(body).encode()
    head = (
        f"{method} /v1/{path.replace('{name}', chooser.choice(_NAMES))} HTTP/1.1\r\n"
        f"Host: localhost\r\nContent-Length: {len(raw)}\r\n"
        f"Authorization: Bearer {token}\r\n\r\n"
    )
    data = bytearray(head.encode("latin-1") + raw)
    if kind == 9:
        data[chooser.randrange(len(data))] ^= 1 << chooser.randrange(8)
    return bytes(data)
