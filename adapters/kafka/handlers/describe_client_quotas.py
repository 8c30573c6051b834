"""DescribeClientQuotas: API key 48, versions 0 to 1 (KIP-546).

v1  flexible encoding (KIP-482)

Each component of the filter selects the entities that have its type: by a name (0), the default
(1), or any (2). With ``strict`` an entity has no other types.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from kafka.protocol.admin import DescribeClientQuotasRequest, DescribeClientQuotasResponse

from adapters.kafka.access.authorization import check_cluster
from adapters.kafka.errors import ErrorCode, code_of
from adapters.kafka.quotas.entity_mapping import field_of, wire_parts
from adapters.kafka.session import Session
from features.quota.model import DEFAULT, Entity, Limits, Part
from gateway.auth.ports import Operation
from gateway.errors import GatewayError, InvalidRequest, public_text

API_KEY: Final = 48
VERSIONS: Final = range(2)
_EXACT: Final = 0
_DEFAULT: Final = 1
_ANY: Final = 2

_Filter = dict[str, Callable[[Part], bool]]


def handle(
    request: DescribeClientQuotasRequest, session: Session, version: int
) -> DescribeClientQuotasResponse:
    """Return the quotas of the entities that match the filter."""
    try:
        check_cluster(session, Operation.DESCRIBE_CONFIGS)
        wanted = _parse(request.components)
    except GatewayError as error:
        return DescribeClientQuotasResponse(
            version=version,
            error_code=code_of(error),
            error_message=public_text(error),
            entries=None,
        )
    entries = [
        _entry(entity, limits)
        for entity, limits in session.node.quotas.entities()
        if _matches(entity, wanted, strict=request.strict)
    ]
    return DescribeClientQuotasResponse(
        version=version, error_code=ErrorCode.NONE, error_message=None, entries=entries
    )


def _parse(components: Sequence[Any]) -> _Filter:
    """Return a test of the part for each field that a component names."""
    found: _Filter = {}
    for component in components:
        field = field_of(component.entity_type)
        if field in found:
            msg = f"Entity type {component.entity_type} cannot appear more than once in the filter"
            raise InvalidRequest(msg)
        found[field] = _test_of(component)
    if "ip" in found and len(found) > 1:
        msg = "Invalid entity filter component combination, ip goes with neither user nor client-id"
        raise InvalidRequest(msg)
    return found


def _test_of(component: Any) -> Callable[[Part], bool]:  # noqa: ANN401 - generated
    name = component.match
    if component.match_type == _EXACT:
        if name is None:
            msg = "Request specified MATCH_TYPE_EXACT, but set match string to null"
            raise InvalidRequest(msg)
        return lambda part: part == name
    if component.match_type not in {_DEFAULT, _ANY}:
        msg = f"Unknown match type {component.match_type}"
        raise InvalidRequest(msg)
    if name is not None:
        msg = "Request specified a match string, but no MATCH_TYPE_EXACT"
        raise InvalidRequest(msg)
    if component.match_type == _DEFAULT:
        return lambda part: part is DEFAULT
    return lambda part: part is not None


def _matches(entity: Entity, wanted: _Filter, *, strict: bool) -> bool:
    for field, part in zip(entity._fields, entity, strict=True):
        test = wanted.get(field)
        if test is None:
            if strict and part is not None:
                return False
        elif not test(part):
            return False
    return True


def _entry(entity: Entity, limits: Limits) -> Any:  # noqa: ANN401 - generated
    entry = DescribeClientQuotasResponse.EntryData
    return entry(
        entity=[
            entry.EntityData(entity_type=kind, entity_name=name)
            for kind, name in wire_parts(entity)
        ],
        values=[
            entry.ValueData(key=key.value, value=float(value)) for key, value in limits.items()
        ],
    )
