"""Clients of a group manager, which talk to it as a handler does; time passes when told."""

import asyncio

from gateway.config.settings import GroupsConfig
from gateway.groups.cursors import Commit, CursorManager
from gateway.groups.expiry import OffsetExpiry
from gateway.groups.manager import GroupManager
from gateway.groups.model import GroupName, GroupState, JoinRequest, JoinResult, SyncResult
from tests.gateway.groups.group_under_test import request
from tests.gateway.kernel_in_memory import GROUPS, House, outcome

NAME = GroupName("default", "g")
RETENTION_MS = GROUPS.offsets_retention_ms


class Clients:
    """Talks to a manager as a handler does; time passes when told."""

    def __init__(self, house: House, groups: GroupManager, cursors: CursorManager) -> None:
        self.house = house
        self.groups = groups
        self.cursors = cursors

    @classmethod
    async def start(cls, house: House, config: GroupsConfig = GROUPS) -> "Clients":
        groups, cursors = await house.groups(config)
        return cls(house, groups, cursors)

    async def restart(self) -> "Clients":
        self.groups.close()
        self.cursors.close()
        await self.house.restart()
        return await Clients.start(self.house)

    def begin_join(
        self, asked: JoinRequest, name: GroupName = NAME
    ) -> asyncio.Future[JoinResult]:
        answer: asyncio.Future[JoinResult] = asyncio.Future()
        self.groups.join(name, asked, answer.set_result)
        return answer

    async def join(self, asked: JoinRequest, name: GroupName = NAME) -> JoinResult:
        answer = self.begin_join(asked, name)
        self.advance(0)
        return await answer

    async def sync(
        self, joined: JoinResult, instance_id: str | None = None, name: GroupName = NAME
    ) -> SyncResult:
        answer: asyncio.Future[SyncResult] = asyncio.Future()
        assignments = {m.member_id: m.member_id.encode() for m in joined.members}
        self.groups.sync(
            name,
            joined.member_id,
            instance_id,
            joined.generation,
            assignments,
            answer.set_result,
        )
        return await answer

    async def member(self, name: GroupName = NAME, **changes: object) -> JoinResult:
        """Bring the only member of a group in, and sync it."""
        asked = request(needs_known_member_id=False)._replace(**changes)  # type: ignore[arg-type]  # whatever a test wants
        joined = await self.join(asked, name)
        await self.sync(joined, asked.instance_id, name)
        return joined

    def advance(self, ms: int) -> None:
        self.house.clock.advance(ms)
        self.groups._deadlines.run_due()

    def state(self, name: GroupName = NAME) -> GroupState | None:
        group = self.groups.find(name)
        return None if group is None else group.state

    def expiry(self) -> OffsetExpiry:
        assert self.groups._expiry is not None
        return self.groups._expiry

    async def commit(self, *commits: Commit, name: GroupName = NAME) -> None:
        error = await outcome(lambda on_done: self.cursors.commit(name, commits, on_done))
        assert error is None
