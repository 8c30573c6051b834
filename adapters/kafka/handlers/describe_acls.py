"""DescribeAcls: API key 29, versions 1 to 3.

Mapping of rules to ACLs: ``adapters.kafka.access.acl_mapping``.

v1  prefixed patterns (KIP-290)
v2  flexible encoding (KIP-482)
v3  the resource type User; it has no ACLs
"""

from typing import Final, TypeAlias

from kafka.protocol.admin import DescribeAclsRequest, DescribeAclsResponse

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
from gateway.auth.ports import Operation
from gateway.errors import GatewayError, public_text

API_KEY: Final = 29
VERSIONS: Final = range(1, 4)

_Resource: TypeAlias = DescribeAclsResponse.DescribeAclsResource


def handle(
    request: DescribeAclsRequest, session: Session, version: int
) -> DescribeAclsResponse:
    """List the ACLs that a filter matches, by resource."""
    try:
        check_cluster(session, Operation.DESCRIBE)
        wanted = to_filter(request)
        found = dict.fromkeys(
            acl for _, acl in bindings(rule_book(session)) if matches(wanted, acl)
        )
    except GatewayError as error:
        return DescribeAclsResponse(
            version=version,
            error_code=code_of(error),
            error_message=public_text(error),
            resources=[],
        )
    by_resource: dict[tuple[int, str, int], list[AclBinding]] = {}
    for acl in found:
        by_resource.setdefault(acl[:3], []).append(acl)
    return DescribeAclsResponse(
        version=version,
        error_code=ErrorCode.NONE,
        error_message=None,
        resources=[_describe(*resource, acls) for resource, acls in by_resource.items()],
    )


def _describe(kind: int, name: str, pattern_type: int, acls: list[AclBinding]) -> _Resource:
    return _Resource(
        resource_type=kind,
        resource_name=name,
        pattern_type=pattern_type,
        acls=[
            _Resource.AclDescription(
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission_type,
            )
            for acl in acls
        ],
    )
