"""Canonical path and query of a request for Signature Version 4. Pure."""

from typing import Final
from urllib.parse import quote, unquote_to_bytes

_UNRESERVED: Final = "-_.~"


def canonical_path(path: bytes) -> bytes:
    """Return the path, URI-encoded once more, without empty, ``.`` and ``..`` segments."""
    steps: list[bytes] = []
    for step in path.split(b"/"):
        if step == b"..":
            del steps[-1:]
        elif step not in {b"", b"."}:
            steps.append(step)
    tail = b"/" if steps and path.endswith(b"/") else b""
    return quote(b"/" + b"/".join(steps) + tail, safe="/" + _UNRESERVED).encode("ascii")


def canonical_query(query: bytes, *, but: bytes) -> bytes:
    """Return the fields sorted and URI-encoded, without the field ``but``."""
    pairs = sorted(
        (quote(name, safe=_UNRESERVED), quote(value, safe=_UNRESERVED))
        for name, value in query_pairs(query)
        if name != but
    )
    return "&".join(f"{name}={value}" for name, value in pairs).encode("ascii")


def query_pairs(query: bytes) -> list[tuple[bytes, bytes]]:
    """Return the fields of a query string, decoded."""
    pairs = []
    for part in query.replace(b"+", b" ").split(b"&"):
        name, _, value = part.partition(b"=")
        if part:
            pairs.append((unquote_to_bytes(name), unquote_to_bytes(value)))
    return pairs
