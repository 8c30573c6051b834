"""DeleteGroups: API key 42, versions 0 to 2.

v2  flexible encoding (KIP-482)
"""

import asyncio
from typing import Final

from kafka.protocol.admin import DeleteGroupsRequest, DeleteGroupsResponse

from adapters.kafka.errors import ErrorCode
from adapters.kafka.groups.coordinator import check_group, group_code_of, group_name
from adapters.kafka.session import Session
from gateway.auth.ports import Operation
from gateway.errors import GatewayError
from gateway.futures import await_done

API_KEY: Final = 42
VERSIONS: Final = range(3)


async def handle(
    request: DeleteGroupsRequest, session: Session, version: int
) -> DeleteGroupsResponse:
    """Delete empty groups, their offsets and queues; return when that is durable."""
    group_ids = list(dict.fromkeys(request.groups_names))
    codes = await asyncio.gather(*(_delete(session, group_id) for group_id in group_ids))
    return DeleteGroupsResponse(
        version=version,
        results=[
            DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=code)
            for group_id, code in zip(group_ids, codes, strict=True)
        ],
    )


async def _delete(session: Session, group_id: str) -> ErrorCode:
    try:
        check_group(session, Operation.DELETE, group_id)
        name = group_name(session, group_id)
        node = session.node
        if name in node.groups.share_groups.by_name:
            await node.shares.delete(name)
        else:
            await await_done(lambda on_done: node.groups.delete(name, on_done))
    except GatewayError as error:
        return group_code_of(error)
    return ErrorCode.NONE
