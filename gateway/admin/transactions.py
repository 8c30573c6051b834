"""REST for transactions of Kafka producers: ``/v1/transactions`` and below.

``?namespace=`` names another namespace than the default one. A transactional id may hold any
character; a ``/`` in it is ``%2F`` in the path. ``POST /v1/transactions/{id}/abort`` aborts what is
open, and fences its producer.
"""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from features.transactions import Transaction
from gateway.admin.paging import Page, slices_of
from gateway.admin.requests import changes, namespace_of, path_text
from gateway.admin.state import AdminState
from gateway.kernel import Kernel
from gateway.transactions.journal import TransactionalId


def routes(state: AdminState) -> list[Route]:
    """Return the routes below ``/v1/transactions``."""

    async def list_transactions(request: Request) -> Response:
        kernel, namespace = state.running(), namespace_of(request)
        names = [one for one in kernel.transactions.values if one.namespace == namespace]
        whole = Page(len(names), 0, "", is_descending=False, contains="")
        names = await whole.cut_sorted(names, lambda one: one.name)
        parts = [await _json(kernel, part) for part in slices_of(names)]
        body = b'{"transactions":[' + b",".join(parts) + b"]}"
        return Response(body, media_type="application/json")

    async def describe(request: Request) -> Response:
        kernel, name = state.running(), _name(request)
        value = kernel.transactions.find(name)
        return JSONResponse(_summary(kernel, name, value) | _parts(kernel, value))

    async def abort(request: Request) -> Response:
        kernel, name = state.running(), _name(request)
        with changes(kernel, request, "transaction.abort", name.name):
            value = await kernel.transactions.abort(name)
        return JSONResponse(_summary(kernel, name, value))

    return [
        Route("/transactions", list_transactions, methods=["GET"]),
        Route("/transactions/{id}", describe, methods=["GET"]),
        Route("/transactions/{id}/abort", abort, methods=["POST"]),
    ]


async def _json(kernel: Kernel, names: Sequence[TransactionalId]) -> bytes:
    """Return the summaries of some ids as JSON, without brackets; some may be gone meanwhile."""
    values = kernel.transactions.values
    found = [_summary(kernel, one, values[one]) for one in names if one in values]
    await asyncio.sleep(0)
    return json.dumps(found, separators=(",", ":")).encode()[1:-1]


def _name(request: Request) -> TransactionalId:
    return TransactionalId(namespace_of(request), path_text(request, "id"))


def _summary(kernel: Kernel, name: TransactionalId, value: Transaction) -> dict[str, Any]:
    """Return an id with its producer; ``open_ms`` is null without an open transaction."""
    open_ms = None
    if value.deadline_unix_ms is not None:
        open_ms = kernel.clock.unix_ms() - value.started_unix_ms
    return {
        "namespace": name.namespace,
        "transactional_id": name.name,
        "state": value.state.kafka_name,
        "producer_id": value.producer_id,
        "epoch": value.epoch,
        "open_ms": open_ms,
        "timeout_ms": value.timeout_ms,
        "partition_count": len(value.partitions),
    }


def _parts(kernel: Kernel, value: Transaction) -> dict[str, Any]:
    """Return the partitions of a transaction, with the offsets that readers wait at, and groups."""
    partitions = []
    for ref in value.partitions:
        topic = kernel.topics.by_uuid(ref.topic_uuid)
        if topic is None:
            continue  # it was deleted
        live = topic.partitions[ref.number]
        opened = None if live is None or live.transactions is None else live.transactions.open
        first = None if opened is None else opened.get(value.producer_id)
        partitions.append(
            {"topic": topic.name.name, "partition": ref.number, "first_offset": first}
        )
    return {"partitions": partitions, "groups": [group.name for group in value.groups]}
