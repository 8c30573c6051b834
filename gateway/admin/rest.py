"""Calls of the REST interface below ``/v1/``; a module for each kind of thing."""

from starlette.routing import Route

from gateway.admin import (
    adapter_views,
    backup,
    config_view,
    deployment,
    dlq,
    exchanges,
    explain,
    find,
    groups,
    keys,
    live,
    node,
    overview,
    queues,
    quotas,
    records,
    report,
    rules,
    scrub,
    topics,
    transactions,
    users,
)
from gateway.admin.state import AdminState


def rest_routes(state: AdminState) -> list[Route]:
    """Return the routes of all calls."""
    return [
        *node.routes(state),
        *live.routes(state),
        *overview.routes(state),
        *topics.routes(state),
        *find.routes(state),
        *records.routes(state),
        *backup.routes(state),
        *scrub.routes(state),
        *groups.routes(state),
        *queues.routes(state),
        *exchanges.routes(state),
        *dlq.routes(state),
        *users.routes(state),
        *keys.routes(state),
        *explain.routes(state),
        *rules.routes(state),
        *quotas.routes(state),
        *transactions.routes(state),
        *config_view.routes(state),
        *report.routes(state),
        *deployment.routes(state),
        *adapter_views.routes(state),
    ]
