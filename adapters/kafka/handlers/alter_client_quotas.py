"""AlterClientQuotas: API key 49, versions 0 to 1 (KIP-546).

v1  flexible encoding (KIP-482)

Each entry is changed by itself, and has a result of its own.
"""

from typing import Any, Final

from kafka.protocol.admin import AlterClientQuotasRequest, AlterClientQuotasResponse

from adapters.kafka.access.authorization import check_cluster
from adapters.kafka.errors import ErrorCode, code_of
from adapters.kafka.quotas.entity_mapping import to_entity
from adapters.kafka.session import Session
from features.quota.model import QuotaKey, check_entity, check_limit, find_key
from gateway.auth.ports import Operation
from gateway.errors import GatewayError, InvalidRequest, public_text

API_KEY: Final = 49
VERSIONS: Final = range(2)


async def handle(
    request: AlterClientQuotasRequest, session: Session, version: int
) -> AlterClientQuotasResponse:
    """Set and remove quotas, entity by entity."""
    entries = []
    for asked in request.entries:
        code, message = ErrorCode.NONE, None
        try:
            await _alter(asked, session, dry=request.validate_only)
        except GatewayError as error:
            code, message = code_of(error), public_text(error)
        entry = AlterClientQuotasResponse.EntryData
        entity = [
            entry.EntityData(entity_type=part.entity_type, entity_name=part.entity_name)
            for part in asked.entity
        ]
        entries.append(entry(error_code=code, error_message=message, entity=entity))
    return AlterClientQuotasResponse(version=version, entries=entries)


async def _alter(asked: Any, session: Session, *, dry: bool) -> None:  # noqa: ANN401 - generated
    quotas = session.node.quotas
    named = ", ".join(f"{one.entity_type} {one.entity_name}" for one in asked.entity)
    with session.changes("quota.alter", named, dry=dry):
        check_cluster(session, Operation.ALTER_CONFIGS)
        entity = check_entity(to_entity(asked.entity))
        changes: dict[QuotaKey, float | None] = {}
        for op in asked.ops:
            key = (
                find_key(entity, op.key) if op.remove else check_limit(entity, op.key, op.value)
            )
            if key in changes:
                msg = f"Duplicate quota key {op.key}"
                raise InvalidRequest(msg)
            changes[key] = None if op.remove else op.value
        quotas.check(entity, changes)
        if not dry:
            await quotas.change(entity, changes)
