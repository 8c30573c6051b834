"""Lists for pages: sorted, filtered and cut on the node, in slices."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from adapters.amqp.names import DEFAULT_VHOST
from adapters.amqp.node import AmqpNode
from gateway.admin.paging import page_of_values
from gateway.admin_views import ViewQuery
from gateway.errors import InvalidRequest

_Row = TypeVar("_Row")


async def listed(
    query: ViewQuery,
    rows: Sequence[_Row],
    *,
    sorts: Mapping[str, Callable[[_Row], Any]],
    text: Callable[[_Row], str],
    view: Callable[[_Row], dict[str, Any]],
) -> dict[str, Any]:
    """Return the page of a list that a query asks for; the first sort is the default one.

    ``text``: where the query's text is looked for. Error: ``InvalidRequest``.
    """
    page = page_of_values(query.values, sorts)
    found = page.names(rows, text)
    cut = await page.cut_sorted(found, sorts[page.sort])
    return {"rows": [view(one) for one in cut], "total": len(found)}


def vhosts_of(node: AmqpNode, query: ViewQuery) -> list[str]:
    """Return the vhost of a query, or all of them. Error: ``InvalidRequest``."""
    return [vhost_of(node, query)] if query.values.get("vhost") else node.vhosts.names()


def vhost_of(node: AmqpNode, query: ViewQuery) -> str:
    """Return the vhost of a query, ``/`` without one. Error: ``InvalidRequest``."""
    vhost = query.values.get("vhost") or DEFAULT_VHOST
    if vhost not in node.vhosts:
        raise InvalidRequest(f"vhost: there is no {vhost[:255]!r}")
    return vhost
