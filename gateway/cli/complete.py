"""Completion of names in a shell: topics, queues, groups and users of the node.

A shell waits for it, so a node has ``TIMEOUT_S`` to answer, and a failure completes nothing.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import typer

from gateway.cli.find_node import NodeOptions, find_client
from gateway.errors import GatewayError

TIMEOUT_S: Final = 0.15
_NAMES_MAX: Final = 100


def topics(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return names of topics that begin so."""
    return _names(ctx, incomplete, "topics", "name")


def queues(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return names of queues that begin so."""
    return _names(ctx, incomplete, "queues", "name")


def groups(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return names of consumer groups that begin so."""
    return _names(ctx, incomplete, "groups", "group_id")


def users(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return names of users that begin so."""
    return _names(ctx, incomplete, "users", "name")


def _names(ctx: typer.Context, incomplete: str, kind: str, key: str) -> list[str]:
    try:
        rows = _rows(ctx.params, incomplete, kind)
    except (GatewayError, OSError, ValueError, KeyError):
        return []
    return [row[key] for row in rows if row[key].startswith(incomplete)]


def _rows(given: Mapping[str, Any], incomplete: str, kind: str) -> Iterable[dict[str, Any]]:
    node = NodeOptions(
        given.get("url"), given.get("token_file"), given.get("config"), given.get("assignments")
    )
    client = find_client(node, namespace=given.get("namespace"))
    client.timeout_s = TIMEOUT_S
    query = {"limit": str(_NAMES_MAX), "contains": incomplete}
    found: list[dict[str, Any]] = client.get(kind, query=query)[kind]
    return found
