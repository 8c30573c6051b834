"""Changes of metadata by revision: their kinds and keys, and the error of an overtaken write."""

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from gateway.errors import GatewayError

REVISION: Final = "metadata_revision"
"""Name of the counter that each write of metadata raises by one."""


class ChangeKind(StrEnum):
    """Kind of metadata, in the order of reloading: a queue comes after its topic.

    Bindings are of the kind of the exchange that they begin at.
    """

    TOPIC = "topic"
    ADDRESS = "address"
    QUEUE = "queue"
    EXCHANGE = "exchange"
    USER = "user"
    ACCESS_KEY = "access_key"
    RULE = "rule"
    QUOTA = "quota"
    DOCUMENT = "document"


class MetadataChange(NamedTuple):
    """Changed row, or changed rows with a common key; a key of "" means all rows of the kind.

    ``is_judged``: whether it depends on what memory has of the kind, as nearly all do.
    """

    kind: ChangeKind
    key: str = ""
    is_judged: bool = True


class ChangesSince(NamedTuple):
    """Keys of the rows that have changed up to ``revision``, by kind.

    ``keys`` is None where the store does not know them any more: all rows may have changed.
    """

    revision: int
    keys: Mapping[str, frozenset[str]] | None


class MetadataChanged(GatewayError):
    """Write judged by memory that another node has made stale: reload, and judge again."""

    retriable = True


def change_of(kind: ChangeKind, *parts: str) -> MetadataChange:
    """Return a change of the row with this key.

    >>> change_of(ChangeKind.EXCHANGE, "default", "logs").key
    '["default","logs"]'
    """
    return MetadataChange(kind, json.dumps(parts, separators=(",", ":")))


def parts_of(key: str) -> tuple[str, ...]:
    """Return the parts of a key that ``change_of`` has made."""
    return tuple(json.loads(key))
