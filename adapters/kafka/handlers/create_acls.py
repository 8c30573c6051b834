"""CreateAcls: API key 30, versions 1 to 3.

Mapping of ACLs to rules: ``adapters.kafka.access.acl_mapping``.

v1  prefixed patterns (KIP-290)
v2  flexible encoding (KIP-482)
v3  the resource type User; refused

On the resources that a rule selects, operations that no rule allows are denied. Other resources
keep their default (``gateway.auth.rules``).
"""

from typing import Final, TypeAlias

from kafka.protocol.admin import CreateAclsRequest, CreateAclsResponse

from adapters.kafka.access.acl_mapping import AclBinding, rule_book, to_rule
from adapters.kafka.access.authorization import check_cluster
from adapters.kafka.errors import ErrorCode, code_of
from adapters.kafka.session import Session
from gateway.auth.audit import rule_text
from gateway.auth.ports import Operation, Rule
from gateway.errors import GatewayError, as_value, public_text

API_KEY: Final = 30
VERSIONS: Final = range(1, 4)

_Result: TypeAlias = CreateAclsResponse.AclCreationResult


async def handle(
    request: CreateAclsRequest, session: Session, version: int
) -> CreateAclsResponse:
    """Add ACLs; all valid ones are stored together."""
    outcomes: list[Rule | GatewayError] = []
    for creation in request.creations:
        try:
            check_cluster(session, Operation.ALTER)
            outcomes.append(to_rule(_binding(creation)))
        except GatewayError as error:
            outcomes.append(as_value(error))
    failure = None
    rules = [outcome for outcome in outcomes if isinstance(outcome, Rule)]
    try:
        if rules:
            await rule_book(session).add_rules(rules)
    except GatewayError as error:
        failure = as_value(error)
    _audit(request, session, outcomes, failure)
    return CreateAclsResponse(
        version=version, results=[_result(outcome, failure) for outcome in outcomes]
    )


def _audit(
    request: CreateAclsRequest,
    session: Session,
    outcomes: list[Rule | GatewayError],
    failure: GatewayError | None,
) -> None:
    note = session.node.audit.note
    for creation, outcome in zip(request.creations, outcomes, strict=True):
        if isinstance(outcome, Rule):
            note(session.principal, "rule.add", rule_text(outcome), failure)
        else:
            note(session.principal, "rule.add", creation.resource_name, outcome)


def _binding(creation: CreateAclsRequest.AclCreation) -> AclBinding:
    return AclBinding(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


def _result(outcome: Rule | GatewayError, failure: GatewayError | None) -> _Result:
    error = outcome if isinstance(outcome, GatewayError) else failure
    if error is None:
        return _Result(error_code=ErrorCode.NONE, error_message=None)
    return _Result(error_code=code_of(error), error_message=public_text(error))
