"""Share groups over sockets: members, sessions, acquired and acknowledged messages."""

from pathlib import Path
from typing import Any

import pytest

from adapters.kafka.errors import ErrorCode
from gateway.shares.group_configs import DELIVERIES, LOCK_MS
from tests.adapters.kafka.running_adapter import running
from tests.adapters.kafka.shares.share_shop import ORDERS, shop
from tests.support.share_groups import (
    ACCEPT,
    DESCRIBE,
    REJECT,
    RELEASE,
    RENEW,
    ShareMember,
    acquired,
    codes,
)
from tests.support.waiting import turns, until


async def test_a_member_gets_the_partitions_of_its_topics(tmp_path: Path) -> None:
    async with shop(tmp_path) as one:
        member = ShareMember(await one.live.client(), member_id="n")

        answer = await member.beat("orders")

        [assigned] = answer.assignment.topic_partitions
        assert (assigned.topic_id, assigned.partitions) == (one.topic_id, (0,))
        assert answer.member_epoch == 2
        described = await member.call(
            DESCRIBE, 1, group_ids=("g", "gone"), include_authorized_operations=False
        )
        group, gone = described.groups
        assert (group.group_state, group.assignor_name) == ("Stable", "simple")
        assert {one.member_id for one in group.members} == {"m", "n"}
        assert gone.error_code.value == ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_member_of_an_older_epoch_is_fenced(tmp_path: Path) -> None:
    async with shop(tmp_path) as one:
        await one.second("n")
        await one.second("o")

        assert (await one.member.beat(epoch=9)).error_code.value == 110
        assert (await one.member.beat()).member_epoch == 3
        stranger = ShareMember(await one.live.client(), member_id="stranger")
        assert (await stranger.beat(epoch=1)).error_code.value == 25


async def test_whole_batches_are_acquired_and_accepted_with_the_next_fetch(
    tmp_path: Path,
) -> None:
    async with shop(tmp_path) as one:
        await one.append(3)
        await one.append(2)
        member = one.member

        first = await member.fetch({one.part(): []}, max_records=2)
        second = await member.fetch({one.part(): [(0, 2, [ACCEPT])]})

        assert acquired(first) == [(0, 0, 2, 1)]
        assert acquired(second) == [(0, 3, 4, 1)]
        assert codes(second) == [(0, 0)]
        assert one.floor() == 3


async def test_the_number_of_records_is_a_hard_limit_in_mode_1(tmp_path: Path) -> None:
    async with shop(tmp_path) as one:
        await one.append(5)

        answer = await one.member.fetch(
            {one.part(): []},
            version=2,
            max_records=2,
            share_acquire_mode=1,
            is_renew_ack=False,
        )

        assert acquired(answer) == [(0, 0, 1, 1)]


async def test_a_fetch_waits_for_messages(tmp_path: Path) -> None:
    async with shop(tmp_path) as one:
        member = one.member
        member.begin_fetch({one.part(): []}, wait_ms=60_000)
        lanes = one.live.adapter.node.shares._waiters
        await until(lambda: bool(lanes))

        await one.append(2)

        assert acquired(await member.answer(78, 1)) == [(0, 0, 1, 1)]
        assert not lanes


async def test_two_members_share_a_partition(tmp_path: Path) -> None:
    async with shop(tmp_path) as one:
        await one.append(2)
        await one.append(2)
        other = await one.second()

        mine = await one.member.fetch({one.part(): []}, max_records=1)
        theirs = await other.fetch({one.part(): []})

        assert acquired(mine) == [(0, 0, 1, 1)]
        assert acquired(theirs) == [(0, 2, 3, 1)]


async def test_released_messages_come_again_and_rejected_ones_do_not(tmp_path: Path) -> None:
    async with shop(tmp_path) as one:
        await one.append(4)
        member = one.member
        await member.fetch({one.part(): []})

        answer = await member.acknowledge(
            {one.part(): [(0, 3, [ACCEPT, RELEASE, REJECT, RELEASE])]}
        )
        again = await member.fetch({one.part(): []})

        [topic] = answer.responses
        assert [part.error_code.value for part in topic.partitions] == [0]
        assert acquired(again) == [(0, 1, 1, 2), (0, 3, 3, 2)]


async def test_a_lock_ends_with_its_time(tmp_path: Path) -> None:
    async with shop(tmp_path, **{LOCK_MS: "5000"}) as one:
        await one.append(2)
        await one.member.fetch({one.part(): []})
        other = await one.second()

        one.clock.advance(4_999)
        assert acquired(await other.fetch({one.part(): []})) == []
        one.clock.advance(1)
        assert acquired(await other.fetch({})) == [(0, 0, 1, 2)]

        late = await one.member.acknowledge({one.part(): [(0, 1, [ACCEPT])]})
        [topic] = late.responses
        assert topic.partitions[0].error_code.value == ErrorCode.INVALID_RECORD_STATE


async def test_a_late_acknowledgement_fails_though_nobody_else_has_the_message(
    tmp_path: Path,
) -> None:
    async with shop(tmp_path, **{LOCK_MS: "5000"}) as one:
        await one.append(1)
        await one.member.fetch({one.part(): []})

        one.clock.advance(5_000)
        late = await one.member.acknowledge({one.part(): [(0, 0, [ACCEPT])]})

        [topic] = late.responses
        assert topic.partitions[0].error_code.value == ErrorCode.INVALID_RECORD_STATE
        assert one.floor() == 0


async def test_a_renewed_lock_begins_anew(tmp_path: Path) -> None:
    async with shop(tmp_path, **{LOCK_MS: "5000"}) as one:
        await one.append(1)
        await one.member.fetch({one.part(): []})
        one.clock.advance(4_000)

        answer = await one.member.acknowledge(
            {one.part(): [(0, 0, [RENEW])]}, version=2, is_renew_ack=True
        )
        one.clock.advance(4_000)
        done = await one.member.acknowledge({one.part(): [(0, 0, [ACCEPT])]})

        assert answer.acquisition_lock_timeout.total_seconds() == 5
        assert done.responses[0].partitions[0].error_code.value == 0
        assert one.floor() == 1


async def test_a_partition_is_acknowledged_whole_or_not_at_all(tmp_path: Path) -> None:
    async with shop(tmp_path) as one:
        await one.append(4)
        await one.member.fetch({one.part(): []})
        await one.member.acknowledge({one.part(): [(1, 1, [ACCEPT])]})

        answer = await one.member.acknowledge(
            {one.part(): [(0, 0, [ACCEPT]), (1, 2, [ACCEPT])]}
        )

        assert answer.responses[0].partitions[0].error_code.value == 121
        assert one.floor() == 0


async def test_offsets_below_the_start_are_done_already(tmp_path: Path) -> None:
    async with shop(tmp_path) as one:
        await one.append(2)
        await one.member.fetch({one.part(): []})
        await one.member.acknowledge({one.part(): [(0, 1, [ACCEPT])]})

        answer = await one.member.acknowledge({one.part(): [(0, 1, [ACCEPT])]})

        assert answer.responses[0].partitions[0].error_code.value == 0


@pytest.mark.parametrize(
    "batches",
    [
        [(1, 0, [ACCEPT])],
        [(0, 1, [ACCEPT]), (1, 1, [ACCEPT])],
        [(0, 2, [ACCEPT, ACCEPT])],
        [(0, 0, [9])],
        [(0, 0, [RENEW])],
        [(0, 0, [])],
        [(0, 50, [ACCEPT])],
    ],
)
async def test_acknowledgements_that_make_no_sense_are_refused(
    tmp_path: Path, batches: list[Any]
) -> None:
    async with shop(tmp_path) as one:
        await one.append(3)
        await one.member.fetch({one.part(): []})

        answer = await one.member.fetch({one.part(): batches})

        assert codes(answer) == [(0, ErrorCode.INVALID_REQUEST)]
        assert one.floor() == 0


async def test_deliveries_are_limited(tmp_path: Path) -> None:
    async with shop(tmp_path, **{DELIVERIES: "2"}) as one:
        await one.append(1)
        member = one.member
        for attempt in (1, 2):
            answer = await member.fetch({one.part(): []})
            assert acquired(answer) == [(0, 0, 0, attempt)]
            await member.acknowledge({one.part(): [(0, 0, [RELEASE])]})

        await until(lambda: one.floor() == 1)
        assert acquired(await member.fetch({})) == []


async def test_messages_that_failed_often_are_delivered_alone(tmp_path: Path) -> None:
    async with shop(tmp_path, **{DELIVERIES: "4"}) as one:
        await one.append(3)
        member = one.member
        for attempt in (1, 2):
            assert acquired(await member.fetch({one.part(): []})) == [(0, 0, 2, attempt)]
            await member.acknowledge({one.part(): [(0, 2, [RELEASE])]})

        assert acquired(await member.fetch({})) == [(0, 0, 0, 3)]


async def test_the_end_of_a_session_gives_back_what_it_has(tmp_path: Path) -> None:
    async with shop(tmp_path) as one:
        await one.append(3)
        member = one.member
        await member.fetch({one.part(): []})
        member.epoch = -1

        closed = await member.fetch({one.part(): [(0, 0, [ACCEPT])]})
        other = await one.second()

        assert codes(closed) == [(0, 0)]
        assert acquired(await other.fetch({one.part(): []})) == [(0, 1, 2, 1)]
        member.epoch = 3
        assert (await member.fetch({})).error_code.value == ErrorCode.SHARE_SESSION_NOT_FOUND


async def test_a_lost_connection_gives_back_what_its_session_has(tmp_path: Path) -> None:
    async with shop(tmp_path) as one:
        await one.append(3)
        other = await one.second()
        await other.fetch({one.part(): []})
        one.member.begin_fetch({one.part(): []}, wait_ms=60_000)
        await turns()

        one.live.clients[-1].writer.close()

        assert acquired(await one.member.answer(78, 1)) == [(0, 0, 2, 1)]


async def test_the_epoch_of_a_session_grows_with_each_request(tmp_path: Path) -> None:
    async with shop(tmp_path) as one:
        member = one.member
        await member.fetch({one.part(): []})
        member.epoch = 5

        answer = await member.fetch({})

        assert answer.error_code.value == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        member.epoch = 0
        assert (await member.acknowledge({})).error_code.value == 123


async def test_sessions_are_bounded(tmp_path: Path) -> None:
    async with running(
        tmp_path, has_groups=True, partitions=1, kafka={"share_sessions_max": 1}
    ) as live:
        first = ShareMember(await live.client())
        await first.beat("orders")
        second = ShareMember(await live.client(), member_id="n")
        part = live.kernel.topics.get(ORDERS).uuid, 0

        assert (await first.fetch({part: []})).error_code.value == 0
        refused = await second.fetch({part: []})

        assert refused.error_code.value == ErrorCode.SHARE_SESSION_LIMIT_REACHED
