"""Host and Origin checks that keep web pages away from listeners without login.

A browser sends what any page tells it to, from inside the network. It says which page it was
(Origin), and by which name it called (Host). A page of somebody else's is told by its Origin; one
whose name was made to point here (DNS rebinding) by the Host: a name of the public DNS that
nobody configured. Programs that are no browsers call by an address, or by a name that the public
DNS cannot have.
"""

from collections.abc import Collection
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

_NOT_PUBLIC: Final = frozenset(
    {
        "corp", "home", "internal", "intranet", "lan", "local", "localdomain", "localhost",
        "private", "svc", "test",
    }
)  # fmt: skip
"""Last labels that the public DNS does not have."""


def is_known_host(authority: str | None, hosts: Collection[str]) -> bool:
    """Say whether a Host header is one by which this node may be called.

    It is when there is none (HTTP/1.0), for an IP address, a name without a dot, a name below a
    top-level domain that is not public, and for ``hosts``, names without a port.

    >>> is_known_host("127.0.0.1:9324", ()), is_known_host("queues:9324", ())
    (True, True)
    >>> is_known_host("evil.example.com", ()), is_known_host("mq.example.com", ("mq.example.com",))
    (False, True)
    """
    name = _name_of(authority or "")
    if not name or name in hosts or _is_address(name):
        return True
    *_, last = labels = name.rstrip(".").split(".")
    return len(labels) == 1 or last in _NOT_PUBLIC


def is_foreign_origin(origin: str | None, authority: str | None) -> bool:
    """Say whether an Origin header is of another host than the one that was called.

    Without one it is no browser's request. All names of this machine are one host.

    >>> is_foreign_origin(None, "mq:8083")
    False
    >>> is_foreign_origin("http://localhost:3000", "127.0.0.1:8083")
    False
    >>> is_foreign_origin("https://evil.example.com", "127.0.0.1:8083")
    True
    >>> is_foreign_origin("null", "mq:8083")
    True
    """
    if origin is None:
        return False
    try:
        caller = urlsplit(origin).hostname or ""
    except ValueError:
        return True
    called = _name_of(authority or "")
    return caller != called and not (_is_loopback(caller) and _is_loopback(called))


def _name_of(authority: str) -> str:
    """Return the host of ``host:port`` in small letters, an IPv6 address without brackets."""
    authority = authority.strip().lower()
    if authority.startswith("["):
        return authority[1:].partition("]")[0]
    return authority.partition(":")[0]


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback(name: str) -> bool:
    if name == "localhost" or name.endswith(".localhost"):
        return True
    return _is_address(name) and ip_address(name).is_loopback
