"""REST for client quotas: ``/v1/quotas``. The parts of an entity identify it.

``GET`` lists the quotas of the store and of the config file (``source``). ``PUT`` sets some limits
of an entity, where null removes one; ``DELETE`` removes all of the entity that its query
parameters name. ``<default>`` is the default.
"""

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from features.quota.model import (
    Entity,
    Limits,
    QuotaKey,
    check_entity,
    check_limit,
    find_key,
    parse_part,
)
from gateway.admin.requests import NotFound, changes, read_body
from gateway.admin.state import AdminState
from gateway.config.base import FrozenConfig
from gateway.errors import InvalidRequest


class QuotaNotFound(NotFound):
    """Entity without quotas."""


class EntityText(FrozenConfig):
    """Entity of a request."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    def entity(self) -> Entity:
        """Return the checked entity. Errors: ``InvalidRequest``."""
        return check_entity(
            Entity(parse_part(self.user), parse_part(self.client_id), parse_part(self.ip))
        )


class QuotaText(EntityText):
    """Limits of an entity, by Kafka's names; null removes one."""

    limits: dict[str, float | None]


def routes(state: AdminState) -> list[Route]:
    """Return the routes below ``/v1/quotas``."""

    async def list_quotas(_: Request) -> Response:
        quotas = state.running().quotas
        found = [
            quota_view(entity, limits, is_declared=quotas.is_declared(entity))
            for entity, limits in quotas.entities()
        ]
        return JSONResponse({"quotas": found})

    async def put(request: Request) -> Response:
        text = await read_body(request, QuotaText)
        entity = text.entity()
        limits = {
            find_key(entity, name) if value is None else check_limit(entity, name, value): value
            for name, value in text.limits.items()
        }
        if not limits:
            msg = "limits: names none"
            raise InvalidRequest(msg)
        await change(request, "quota.set", entity, limits)
        kept = state.running().quotas.limits_of(entity)
        return JSONResponse(quota_view(entity, kept, is_declared=False))

    async def delete(request: Request) -> Response:
        entity = _asked(request).entity()
        limits = state.running().quotas.limits_of(entity)
        if not limits:
            raise QuotaNotFound(f"{entity.text()} has no quotas")
        await change(request, "quota.remove", entity, dict.fromkeys(limits))
        return Response(status_code=204)

    async def change(
        request: Request, action: str, entity: Entity, limits: dict[QuotaKey, float | None]
    ) -> None:
        kernel = state.running()
        with changes(kernel, request, action, entity.text()):
            await kernel.quotas.change(entity, limits)

    return [
        Route("/quotas", list_quotas, methods=["GET"]),
        Route("/quotas", put, methods=["PUT"]),
        Route("/quotas", delete, methods=["DELETE"]),
    ]


def _asked(request: Request) -> EntityText:
    try:
        return EntityText.model_validate(dict(request.query_params))
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        raise InvalidRequest(f"{detail['loc'][0]}: {detail['msg']}") from error


def quota_view(entity: Entity, limits: Limits, *, is_declared: bool) -> dict[str, object]:
    """Return the quotas of an entity; parts that do not matter are null."""
    return {
        **{
            name: part if isinstance(part, str) or part is None else part.value
            for name, part in zip(entity._fields, entity, strict=True)
        },
        "limits": {key.value: value for key, value in limits.items()},
        "source": "config" if is_declared else "store",
    }
