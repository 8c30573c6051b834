"""A rig with consumer groups, and a consumer that calls the handlers."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from kafka.protocol.consumer import (
    JoinGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)

from adapters.kafka.handlers import heartbeat, offset_commit
from adapters.kafka.session import Session
from gateway.config.settings import GroupsConfig
from gateway.config.transactions import TransactionsConfig
from gateway.groups.cursors import CursorManager
from gateway.groups.manager import GroupManager
from gateway.groups.model import GroupName, GroupState
from gateway.shares.manager import ShareGroups
from gateway.transactions.coordinator import TransactionCoordinator
from gateway.transfer.transfers import Transfers
from tests.adapters.kafka.codecs import kio_codec
from tests.adapters.kafka.handlers.handler_fixture import Rig, request_class_of
from tests.gateway.groups.group_under_test import SESSION_MS, subscription

CONFIG = GroupsConfig(initial_rebalance_delay_ms=0)
GROUP = "readers"


class GroupRig:
    """Calls the handlers of the group APIs; see ``Rig``."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.ask = rig.ask

    @classmethod
    async def open(cls, rig: Rig) -> "GroupRig":
        node = rig.node
        cursors = await CursorManager.open(node.broker, node.topics, node.clock, CONFIG)
        groups = await GroupManager.open(node.broker, node.topics, cursors, node.clock, CONFIG)
        transfers = Transfers(node.broker, node.topics, node.clock)
        await transfers.open()
        transactions = await TransactionCoordinator.open(
            node.broker,
            node.topics,
            cursors,
            transfers,
            node.clock,
            TransactionsConfig(),
            node.producer_ids,
        )
        shares = ShareGroups(
            groups, cursors, cast("Any", None), node.topics, node.broker, node.clock, CONFIG
        )
        rig.node = replace(
            node, groups=groups, cursors=cursors, transactions=transactions, shares=shares
        )
        rig.session = rig.login("admin")
        rig.session.client_id = "app"
        return cls(rig)

    @property
    def groups(self) -> GroupManager:
        return self.rig.node.groups

    def state(self) -> GroupState | None:
        group = self.groups.find(GroupName("default", GROUP))
        return None if group is None else group.state

    def login(self, name: str) -> Session:
        return self.rig.login(name)

    async def join(self, version: int, member_id: str = "", **fields: Any) -> Any:
        """Send one JoinGroup request; from version 4 on a second one with the id is needed."""
        protocol = JoinGroupRequest.JoinGroupRequestProtocol
        defaults: dict[str, Any] = {
            "group_id": GROUP,
            "session_timeout_ms": SESSION_MS,
            "member_id": member_id,
            "protocol_type": "consumer",
            "protocols": [protocol(name="range", metadata=subscription("t"))],
        }
        if version >= 1:
            defaults["rebalance_timeout_ms"] = 60_000
        return await self.ask("join_group", version, **(defaults | fields))

    async def sync(
        self, version: int, joined: Any, assignments: dict[str, bytes], **fields: Any
    ) -> Any:
        item = SyncGroupRequest.SyncGroupRequestAssignment
        defaults: dict[str, Any] = {
            "group_id": GROUP,
            "generation_id": joined.generation_id,
            "member_id": joined.member_id,
            "assignments": [item(member_id=m, assignment=a) for m, a in assignments.items()],
        }
        return await self.ask("sync_group", version, **(defaults | fields))

    async def member(self, *, group_id: str = GROUP, **fields: Any) -> Any:
        """Add the only member; return the response to its join."""
        joined = await self.join(3, group_id=group_id, **fields)
        assignments = {joined.member_id: b"all of it"}
        await self.sync(3, joined, assignments, group_id=group_id)
        return joined

    def heartbeat(self, version: int, joined: Any, **fields: Any) -> int:
        kind = request_class_of(heartbeat.API_KEY)
        defaults = {
            "group_id": GROUP,
            "generation_id": joined.generation_id,
            "member_id": joined.member_id,
        }
        body = bytes(kind(version=version, **(defaults | fields)).encode())
        request = heartbeat.decode(version, memoryview(body))
        data = heartbeat.handle(request, self.rig.session, version)
        answer = kio_codec.decode(kio_codec.response_class(heartbeat.API_KEY, version), data)
        return int(answer.error_code)

    async def commit(
        self,
        version: int,
        topics: dict[Any, Sequence[tuple[int, int]]],
        *,
        session: Session | None = None,
        metadata: str | None = "m",
        **fields: Any,
    ) -> dict[Any, dict[int, int]]:
        """Commit (partition, offset) pairs by topic; return the error codes in the same form."""
        topic = OffsetCommitRequest.OffsetCommitRequestTopic
        partition = topic.OffsetCommitRequestPartition
        key = "topic_id" if version >= 10 else "name"
        request = OffsetCommitRequest(
            version=version,
            **(
                {"group_id": GROUP, "generation_id_or_member_epoch": -1, "member_id": ""}
                | fields
            ),
            topics=[
                topic(
                    **{key: ref},
                    partitions=[
                        partition(
                            partition_index=number,
                            committed_offset=offset,
                            committed_leader_epoch=5,
                            committed_metadata=metadata,
                        )
                        for number, offset in partitions
                    ],
                )
                for ref, partitions in topics.items()
            ],
        )
        decoded = offset_commit.decode(version, memoryview(bytes(request.encode())))
        reply: asyncio.Future[bytes] = asyncio.Future()
        offset_commit.handle(decoded, session or self.rig.session, version, reply.set_result)
        answer = kio_codec.decode(
            kio_codec.response_class(offset_commit.API_KEY, version), await reply
        )
        return {
            (found.topic_id if version >= 10 else found.name): {
                p.partition_index: int(p.error_code) for p in found.partitions
            }
            for found in answer.topics
        }

    async def fetch(
        self,
        version: int,
        topics: dict[Any, list[int]] | None,
        *,
        group_id: str = GROUP,
        session: Session | None = None,
    ) -> tuple[int, dict[Any, list[Any]]]:
        """Fetch offsets; return the group's error code, and the partitions by topic."""
        if version >= 8:
            return await self._fetch_of_group(version, topics, group_id, session)
        kind = OffsetFetchRequest.OffsetFetchRequestTopic
        asked = None
        if topics is not None:
            asked = [kind(name=name, partition_indexes=n) for name, n in topics.items()]
        answer = await self.ask(
            "offset_fetch", version, session=session, group_id=group_id, topics=asked
        )
        found = {topic.name: list(topic.partitions) for topic in answer.topics}
        return int(getattr(answer, "error_code", 0)), found

    async def _fetch_of_group(
        self,
        version: int,
        topics: dict[Any, list[int]] | None,
        group_id: str,
        session: Session | None,
    ) -> tuple[int, dict[Any, list[Any]]]:
        kind = OffsetFetchRequest.OffsetFetchRequestGroup
        key = "topic_id" if version >= 10 else "name"
        asked = None
        if topics is not None:
            asked = [
                kind.OffsetFetchRequestTopics(**{key: ref}, partition_indexes=numbers)
                for ref, numbers in topics.items()
            ]
        answer = await self.ask(
            "offset_fetch",
            version,
            session=session,
            groups=[kind(group_id=group_id, topics=asked)],
        )
        (group,) = answer.groups
        assert group.group_id == group_id
        found = {getattr(topic, key): list(topic.partitions) for topic in group.topics}
        return int(group.error_code), found
