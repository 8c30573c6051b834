"""DeleteAcls: API key 31, versions 1 to 3.

Mapping of ACLs to rules: ``adapters.kafka.access.acl_mapping``.

v1  prefixed patterns (KIP-290)
v2  flexible encoding (KIP-482)
v3  the resource type User; it has no ACLs

ACLs of the config file match too; each is returned with an error and is kept.
"""

from typing import Final, TypeAlias

from kafka.protocol.admin import DeleteAclsRequest, DeleteAclsResponse

from adapters.kafka.access.acl_mapping import (
    AclBinding,
    bindings,
    matches,
    rule_book,
    to_filter,
)
from adapters.kafka.access.authorization import check_cluster
from adapters.kafka.errors import ErrorCode, code_of
from adapters.kafka.session import Session
from gateway.auth.audit import rule_text
from gateway.auth.ports import Operation, Rule
from gateway.errors import GatewayError, public_text

API_KEY: Final = 31
VERSIONS: Final = range(1, 4)

_Result: TypeAlias = DeleteAclsResponse.DeleteAclsFilterResult
_Filter: TypeAlias = DeleteAclsRequest.DeleteAclsFilter
_Matching: TypeAlias = DeleteAclsResponse.DeleteAclsFilterResult.DeleteAclsMatchingAcl


async def handle(
    request: DeleteAclsRequest, session: Session, version: int
) -> DeleteAclsResponse:
    """Delete the ACLs that each filter matches; an ACL may be listed under several filters."""
    results = [await _answer(asked, session) for asked in request.filters]
    return DeleteAclsResponse(version=version, filter_results=results)


async def _answer(asked: _Filter, session: Session) -> _Result:
    try:
        check_cluster(session, Operation.ALTER)
        wanted = to_filter(asked)
        book = rule_book(session)
        found = [(rule, acl) for rule, acl in bindings(book) if matches(wanted, acl)]
        static = set(book.static_rules())
        gone = [rule for rule, _ in found if rule not in static]
        await book.delete_rules(gone)
    except GatewayError as error:
        session.node.audit.note(session.principal, "rule.remove", "", error)
        return _Result(
            error_code=code_of(error),
            error_message=public_text(error),
            matching_acls=[],
        )
    for rule in gone:
        session.node.audit.note(session.principal, "rule.remove", rule_text(rule))
    return _Result(
        error_code=ErrorCode.NONE,
        error_message=None,
        matching_acls=[_matching(rule, acl, static) for rule, acl in found],
    )


def _matching(rule: Rule, acl: AclBinding, static: set[Rule]) -> _Matching:
    code, message = ErrorCode.NONE, None
    if rule in static:
        code, message = ErrorCode.POLICY_VIOLATION, "The rule is set in the config file."
    return _Matching(
        error_code=code,
        error_message=message,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )
