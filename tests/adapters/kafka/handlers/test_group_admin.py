"""FindCoordinator, DescribeGroups, ListGroups and DeleteGroups, in every version."""

from typing import Any

import pytest

from adapters.kafka.access.authorization import to_bits
from adapters.kafka.errors import ErrorCode
from adapters.kafka.handlers import (
    delete_groups,
    describe_groups,
    find_coordinator,
    list_groups,
)
from adapters.kafka.session import Session
from gateway.auth.ports import Operation
from tests.adapters.kafka.handlers.group_fixture import GROUP, GroupRig
from tests.adapters.kafka.handlers.handler_fixture import ADVERTISED, NODE_ID, Rig
from tests.gateway.groups.group_under_test import subscription

GROUP_KEY, TRANSACTION_KEY, SHARE_KEY = 0, 1, 2


@pytest.fixture
async def rig(rig: Rig) -> GroupRig:
    await rig.topic("t")
    return await GroupRig.open(rig)


async def stranger(rig: GroupRig) -> Session:
    """Return a session of a user without any allowed operation."""
    await rig.rig.allow("bob", Operation.READ, "group", GROUP)
    return rig.login("alice")


class TestFindCoordinator:
    async def find(
        self, rig: GroupRig, version: int, key: str, kind: int = GROUP_KEY, **more: Any
    ) -> Any:
        fields: dict[str, Any] = {"coordinator_keys": [key]} if version >= 4 else {"key": key}
        if version >= 1:
            fields["key_type"] = kind
        answer = await rig.ask("find_coordinator", version, **fields, **more)
        return answer.coordinators[0] if version >= 4 else answer

    @pytest.mark.parametrize("version", find_coordinator.VERSIONS)
    async def test_groups_are_here(self, rig: GroupRig, version: int) -> None:
        found = await self.find(rig, version, GROUP)

        assert (found.error_code, found.node_id) == (ErrorCode.NONE, NODE_ID)
        assert (found.host, found.port) == ADVERTISED

    @pytest.mark.parametrize("version", [v for v in find_coordinator.VERSIONS if v >= 1])
    async def test_transactional_ids_are_here(self, rig: GroupRig, version: int) -> None:
        found = await self.find(rig, version, "tx", TRANSACTION_KEY)

        assert (found.error_code, found.node_id) == (ErrorCode.NONE, NODE_ID)

    async def test_transactional_id_needs_a_right(self, rig: GroupRig) -> None:
        found = await self.find(rig, 4, "tx", TRANSACTION_KEY, session=await stranger(rig))

        assert found.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    async def test_other_kinds_are_refused(self, rig: GroupRig) -> None:
        found = await self.find(rig, 6, "g:t:0", SHARE_KEY)

        assert found.error_code == ErrorCode.INVALID_REQUEST

    async def test_several_at_once(self, rig: GroupRig) -> None:
        answer = await rig.ask("find_coordinator", 4, coordinator_keys=["a", "b"], key_type=0)

        assert [(c.key, c.node_id) for c in answer.coordinators] == [
            ("a", NODE_ID),
            ("b", NODE_ID),
        ]

    async def test_it_needs_a_right(self, rig: GroupRig) -> None:
        found = await self.find(rig, 4, GROUP, session=await stranger(rig))

        assert found.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


class TestDescribeGroups:
    @pytest.mark.parametrize("version", describe_groups.VERSIONS)
    async def test_a_stable_group(self, rig: GroupRig, version: int) -> None:
        joined = await rig.member()

        answer = await rig.ask("describe_groups", version, groups=[GROUP])

        (group,) = answer.groups
        assert (group.group_state, group.protocol_type) == ("Stable", "consumer")
        assert group.protocol_data == "range"
        (member,) = group.members
        assert (member.member_id, member.client_id) == (joined.member_id, "app")
        assert member.client_host == "/10.1.2.3"
        assert member.member_metadata == subscription("t")
        assert member.member_assignment == b"all of it"

    async def test_a_group_in_between_hides_what_does_not_hold(self, rig: GroupRig) -> None:
        await rig.join(3)

        (group,) = (await rig.ask("describe_groups", 5, groups=[GROUP])).groups

        assert (group.group_state, group.protocol_data) == ("CompletingRebalance", "")
        assert group.members[0].member_metadata == b""

    async def test_a_group_of_offsets_alone_is_empty(self, rig: GroupRig) -> None:
        await rig.commit(9, {"t": [(0, 1)]})

        (group,) = (await rig.ask("describe_groups", 6, groups=[GROUP])).groups

        assert (group.error_code, group.group_state) == (ErrorCode.NONE, "Empty")
        assert (group.protocol_type, group.members) == ("", ())

    @pytest.mark.parametrize("version", describe_groups.VERSIONS)
    async def test_an_unknown_group_is_dead(self, rig: GroupRig, version: int) -> None:
        (group,) = (await rig.ask("describe_groups", version, groups=["nobody"])).groups

        assert group.group_state == "Dead"
        expected = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE
        assert group.error_code == expected

    async def test_rights_are_told_when_asked_for(self, rig: GroupRig) -> None:
        await rig.member()
        await rig.rig.allow("alice", Operation.DESCRIBE, "group", GROUP)
        await rig.rig.allow("alice", Operation.READ, "group", GROUP)

        answer = await rig.ask(
            "describe_groups",
            4,
            session=rig.login("alice"),
            groups=[GROUP],
            include_authorized_operations=True,
        )

        assert answer.groups[0].authorized_operations == to_bits(frozenset({3, 8}))

    async def test_it_needs_a_right(self, rig: GroupRig) -> None:
        answer = await rig.ask(
            "describe_groups", 4, session=await stranger(rig), groups=[GROUP]
        )

        assert answer.groups[0].error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


class TestListGroups:
    async def names(self, rig: GroupRig, version: int, **fields: Any) -> list[str]:
        answer = await rig.ask("list_groups", version, **fields)
        assert answer.error_code == ErrorCode.NONE
        return [group.group_id for group in answer.groups]

    @pytest.mark.parametrize("version", list_groups.VERSIONS)
    async def test_all_groups(self, rig: GroupRig, version: int) -> None:
        await rig.member()
        await rig.commit(9, {"t": [(0, 1)]}, group_id="simple")

        answer = await rig.ask("list_groups", version)

        found = [(g.group_id, g.protocol_type) for g in answer.groups]
        assert found == [(GROUP, "consumer"), ("simple", "")]
        if version >= 4:
            assert [g.group_state for g in answer.groups] == ["Stable", "Empty"]
        if version >= 5:
            assert {g.group_type for g in answer.groups} == {"classic"}

    async def test_filters_do_not_look_at_case(self, rig: GroupRig) -> None:
        await rig.member()
        await rig.commit(9, {"t": [(0, 1)]}, group_id="simple")

        assert await self.names(rig, 4, states_filter=["STABLE"]) == [GROUP]
        assert await self.names(rig, 4, states_filter=["Dead"]) == []
        assert await self.names(rig, 5, types_filter=["Classic"]) == [GROUP, "simple"]
        assert await self.names(rig, 5, types_filter=["consumer"]) == []

    async def test_only_what_may_be_seen(self, rig: GroupRig) -> None:
        await rig.commit(9, {"t": [(0, 1)]}, group_id="mine")
        await rig.commit(9, {"t": [(0, 1)]}, group_id="yours")
        await rig.rig.allow("alice", Operation.DESCRIBE, "group", "mine")
        await rig.rig.allow("bob", Operation.DESCRIBE, "cluster", "")

        assert await self.names(rig, 4, session=rig.login("alice")) == ["mine"]
        assert await self.names(rig, 4, session=rig.login("bob")) == ["mine", "yours"]


class TestDeleteGroups:
    @pytest.mark.parametrize("version", delete_groups.VERSIONS)
    async def test_empty_groups_go(self, rig: GroupRig, version: int) -> None:
        await rig.member()
        await rig.commit(9, {"t": [(0, 1)]}, group_id="simple")

        answer = await rig.ask(
            "delete_groups", version, groups_names=["simple", GROUP, "nobody", "simple"]
        )

        assert [(r.group_id, r.error_code) for r in answer.results] == [
            ("simple", ErrorCode.NONE),
            (GROUP, ErrorCode.NON_EMPTY_GROUP),
            ("nobody", ErrorCode.GROUP_ID_NOT_FOUND),
        ]
        assert [name.name for name in rig.groups.names()] == [GROUP]

    async def test_it_needs_a_right(self, rig: GroupRig) -> None:
        await rig.commit(9, {"t": [(0, 1)]})

        answer = await rig.ask(
            "delete_groups", 1, session=await stranger(rig), groups_names=[GROUP]
        )

        assert answer.results[0].error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
