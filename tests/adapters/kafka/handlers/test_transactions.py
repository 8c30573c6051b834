"""Handlers of the transaction APIs: outcomes, error codes, authorization."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.producer import AddPartitionsToTxnRequest, TxnOffsetCommitRequest

from adapters.kafka.errors import ErrorCode
from adapters.kafka.handlers import list_transactions
from gateway.auth.ports import Operation
from gateway.config.settings import GroupsConfig
from gateway.testing.placement import SettablePlacement
from tests.adapters.kafka.handlers.group_fixture import GroupRig
from tests.adapters.kafka.handlers.handler_fixture import running
from tests.adapters.kafka.handlers.transaction_fixture import NONE, TX, TransactionRig

V1, V2 = 11, 12
"""Versions of Produce, by the version of the transaction protocol."""
EMPTY_FILTERS: dict[str, Any] = {"state_filters": [], "producer_id_filters": []}


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[TransactionRig]:
    async with running(tmp_path) as one:
        topic = await one.topic("t", partitions=3)
        yield TransactionRig(await GroupRig.open(one), topic)


def stable_end(rig: TransactionRig, number: int = 0) -> int:
    return rig.rig.partition(rig.topic, number).stable_end


class TestInitProducerId:
    @pytest.mark.parametrize("version", range(6))
    async def test_each_producer_gets_the_next_epoch(
        self, rig: TransactionRig, version: int
    ) -> None:
        first, second = await rig.init(version), await rig.init(version)

        assert (first.error_code.value, second.error_code.value) == (NONE, NONE)
        assert first.producer_id == second.producer_id
        assert (first.producer_epoch, second.producer_epoch) == (0, 1)

    @pytest.mark.parametrize(
        ("fields", "code"),
        [
            ({"name": ""}, ErrorCode.INVALID_REQUEST),
            ({"producer_id": 5}, ErrorCode.INVALID_REQUEST),
            ({"producer_epoch": 5}, ErrorCode.INVALID_REQUEST),
            ({"transaction_timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
            ({"transaction_timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ],
    )
    async def test_bad_requests(
        self, rig: TransactionRig, fields: dict[str, Any], code: ErrorCode
    ) -> None:
        answer = await rig.init(**fields)

        assert (answer.error_code.value, answer.producer_id) == (code, -1)

    @pytest.mark.parametrize(
        ("version", "code"),
        [(3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, ErrorCode.PRODUCER_FENCED)],
    )
    async def test_zombie_is_fenced(
        self, rig: TransactionRig, version: int, code: ErrorCode
    ) -> None:
        old = await rig.init()
        await rig.init()

        answer = await rig.init(version, producer_id=old.producer_id, producer_epoch=0)

        assert answer.error_code.value == code

    async def test_open_transaction_is_aborted(self, rig: TransactionRig) -> None:
        await rig.init()
        await rig.produce(V2)

        answer = await rig.init()

        assert (answer.error_code.value, answer.producer_epoch) == (NONE, 2)
        assert stable_end(rig) == 2


class TestTransaction:
    @pytest.mark.parametrize("version", range(4))
    async def test_added_partitions_are_committed(
        self, rig: TransactionRig, version: int
    ) -> None:
        await rig.init()

        codes = await rig.add(version, 0, 2)
        written = [await rig.produce(V1, number) for number in (0, 2)]
        open_ends = [stable_end(rig, number) for number in (0, 2)]
        answer = await rig.end(4)

        assert codes == [NONE, NONE]
        assert written == [(NONE, 0), (NONE, 0)]
        assert open_ends == [0, 0]
        assert answer.error_code.value == NONE
        assert [stable_end(rig, number) for number in range(3)] == [2, 0, 2]

    async def test_second_version_adds_partitions_and_moves_the_epoch(
        self, rig: TransactionRig
    ) -> None:
        await rig.init()
        epochs = []
        for commit in (True, False, True):
            assert await rig.produce(V2, 1) == (NONE, stable_end(rig, 1))
            answer = await rig.end(5, commit=commit)
            epochs.append((answer.error_code.value, answer.producer_epoch))

        assert epochs == [(NONE, 1), (NONE, 2), (NONE, 3)]
        assert stable_end(rig, 1) == 6

    @pytest.mark.parametrize(
        ("version", "code"),
        [(10, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)],
    )
    async def test_batch_of_a_partition_that_was_not_added_is_refused(
        self, rig: TransactionRig, version: int, code: ErrorCode
    ) -> None:
        await rig.init()
        await rig.add(3, 1)

        assert await rig.produce(version, 0) == (code, -1)

    async def test_late_batch_does_not_open_a_transaction(self, rig: TransactionRig) -> None:
        await rig.init()
        epoch = rig.epoch
        await rig.produce(V2)
        await rig.end(5)

        code, _ = await rig.produce(V2, producer_epoch=epoch, base_sequence=1)

        assert code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert stable_end(rig) == 2

    async def test_repeated_batch_is_answered_after_the_end_too(
        self, rig: TransactionRig
    ) -> None:
        await rig.init()
        await rig.add(3, 0)
        await rig.produce(V1)
        await rig.end(4)

        assert await rig.produce(V1, base_sequence=0) == (NONE, 0)

    async def test_unknown_producer_and_id(self, rig: TransactionRig) -> None:
        await rig.init()
        mapping = ErrorCode.INVALID_PRODUCER_ID_MAPPING

        assert await rig.produce(V2, name="other") == (mapping, -1)
        assert await rig.produce(V2, producer_id=rig.producer_id + 1) == (mapping, -1)
        assert await rig.add(3, 0, v3_and_below_transactional_id="other") == [mapping]
        assert (await rig.end(transactional_id="other")).error_code.value == mapping

    async def test_all_partitions_are_added_or_none(self, rig: TransactionRig) -> None:
        await rig.init()

        codes = await rig.add(3, 0, 7)

        assert codes == [
            ErrorCode.OPERATION_NOT_ATTEMPTED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        code, _ = await rig.produce(V1, 0)
        assert code == ErrorCode.TRANSACTION_ABORTABLE

    async def test_partition_of_another_node_is_added(self, rig: TransactionRig) -> None:
        await rig.init()
        broker = rig.rig.node.broker
        broker.partition(rig.topic, 0)  # stays here
        placement = SettablePlacement(1)
        placement.give([0])
        broker.placement = placement

        assert await rig.add(3, 0, 1) == [NONE, NONE]

    @pytest.mark.parametrize(
        ("version", "code"),
        [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)],
    )
    async def test_zombie_ends_nothing(
        self, rig: TransactionRig, version: int, code: ErrorCode
    ) -> None:
        await rig.init()
        await rig.init()
        await rig.add(3, 0)

        ended = await rig.end(version, producer_epoch=0)
        added = await rig.add(version, 1, v3_and_below_producer_epoch=0)

        assert ended.error_code.value == code
        assert added == [code]

    async def test_repeated_end_gets_the_same_answer(self, rig: TransactionRig) -> None:
        await rig.init()
        producer = rig.producer_id, rig.epoch
        await rig.produce(V2)

        first = await rig.end(5)
        again = await rig.end(5, producer_id=producer[0], producer_epoch=producer[1])
        other = await rig.end(
            5, commit=False, producer_id=producer[0], producer_epoch=producer[1]
        )

        assert again == first
        assert (first.error_code.value, first.producer_epoch) == (NONE, producer[1] + 1)
        assert (other.error_code.value, other.producer_epoch) == (
            ErrorCode.INVALID_TXN_STATE,
            -1,
        )


class TestOffsets:
    @pytest.mark.parametrize("version", range(6))
    async def test_committed_offset_is_that_of_the_group_after_the_end(
        self, rig: TransactionRig, version: int
    ) -> None:
        await rig.init()
        if version < 5:
            assert await rig.add_group() == NONE
        code = await rig.commit_offset(version, 11)
        before = [await rig.fetch_offset(stable=stable) for stable in (False, True)]

        await rig.end(4 if version < 5 else 5)

        assert code == NONE
        assert before == [(NONE, -1), (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)]
        assert await rig.fetch_offset(stable=True) == (NONE, 11)

    @pytest.mark.parametrize("group", ["", "g" * 32_768])
    async def test_group_needs_a_name_within_bounds(
        self, rig: TransactionRig, group: str
    ) -> None:
        await rig.init()

        assert await rig.add_group(group=group) == ErrorCode.INVALID_GROUP_ID

    async def test_aborted_offset_is_forgotten(self, rig: TransactionRig) -> None:
        await rig.init()
        await rig.commit_offset(5, 11)

        await rig.end(5, commit=False)

        assert await rig.fetch_offset(stable=True) == (NONE, -1)

    @pytest.mark.parametrize(
        ("version", "code"),
        [(3, ErrorCode.INVALID_TXN_STATE), (4, ErrorCode.TRANSACTION_ABORTABLE)],
    )
    async def test_group_that_was_not_added_is_refused(
        self, rig: TransactionRig, version: int, code: ErrorCode
    ) -> None:
        await rig.init()

        assert await rig.commit_offset(version, 11) == code

    @pytest.mark.parametrize(
        ("fields", "code"),
        [
            ({"member_id": "nobody", "generation_id": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"generation_id": 9}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"producer_epoch": 7}, ErrorCode.INVALID_PRODUCER_EPOCH),
            ({"producer_id": 999_999}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
            ({}, NONE),
        ],
    )
    async def test_member_and_producer_are_checked(
        self, rig: TransactionRig, fields: dict[str, Any], code: ErrorCode
    ) -> None:
        await rig.init()
        await rig.groups.member()

        assert await rig.commit_offset(5, 11, **fields) == code

    async def test_other_generation_is_refused(self, rig: TransactionRig) -> None:
        await rig.init()
        joined = await rig.groups.member()

        code = await rig.commit_offset(
            5, 11, member_id=joined.member_id, generation_id=joined.generation_id + 1
        )

        assert code == ErrorCode.ILLEGAL_GENERATION

    async def test_generation_of_a_group_that_is_not_there_is_refused(
        self, rig: TransactionRig
    ) -> None:
        await rig.init()

        code = await rig.commit_offset(5, 11, generation_id=1)

        assert code == ErrorCode.ILLEGAL_GENERATION

    async def test_offsets_of_all_transactions_are_bounded(self, rig: TransactionRig) -> None:
        pending = rig.rig.node.cursors.pending
        pending._config = GroupsConfig(pending_offsets_max=1)
        await rig.init()
        kind = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        part = kind.TxnOffsetCommitRequestPartition
        other = [kind(name="t", partitions=[part(partition_index=1, committed_offset=5)])]

        first = await rig.commit_offset(5, 11)
        refused = await rig.commit_offset(5, 5, topics=other)
        await rig.end()

        assert (first, refused) == (NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        assert await rig.commit_offset(5, 5, topics=other) == NONE


class TestAdmin:
    async def test_many_ids_are_listed_in_slices(
        self, rig: TransactionRig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(list_transactions, "SLICE_ELEMENTS", 2)
        yields: list[None] = []

        async def yield_to_loop() -> None:
            yields.append(None)

        monkeypatch.setattr(list_transactions, "yield_to_loop", yield_to_loop)
        for number in range(5):
            await rig.init(name=f"tx-{number}")

        answer = await rig.ask("list_transactions", 0, **EMPTY_FILTERS)

        found = {one.transactional_id for one in answer.transaction_states}
        assert found == {f"tx-{number}" for number in range(5)}
        assert len(yields) == 2

    async def test_open_transaction_is_described(self, rig: TransactionRig) -> None:
        await rig.init()
        await rig.produce(V2, 1)
        await rig.produce(V2, 2)

        answer = await rig.ask("describe_transactions", 0, transactional_ids=[TX, "other"])

        found, missing = answer.transaction_states
        assert (found.transaction_state, found.producer_id) == ("Ongoing", rig.producer_id)
        assert found.topics[0].partitions == (1, 2)
        assert missing.error_code.value == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

    @pytest.mark.parametrize("version", range(3))
    async def test_list_is_filtered(self, rig: TransactionRig, version: int) -> None:
        await rig.init(name="idle")
        await rig.init()
        await rig.produce(V2)

        everything = await rig.ask("list_transactions", version, **EMPTY_FILTERS)
        ongoing = await rig.ask(
            "list_transactions",
            version,
            **(EMPTY_FILTERS | {"state_filters": ["Ongoing", "Nonsense"]}),
        )

        assert {one.transactional_id for one in everything.transaction_states} == {TX, "idle"}
        assert [one.transactional_id for one in ongoing.transaction_states] == [TX]
        assert ongoing.unknown_state_filters == ("Nonsense",)

    async def test_list_is_filtered_by_name_and_duration(self, rig: TransactionRig) -> None:
        await rig.init()
        await rig.produce(V2)
        await rig.init(name="tx-2")

        async def names(**fields: Any) -> list[str]:
            answer = await rig.ask("list_transactions", 2, **(EMPTY_FILTERS | fields))
            return [one.transactional_id for one in answer.transaction_states]

        assert await names(transactional_id_pattern="tx-.*") == ["tx-2"]
        assert await names(duration_filter=0) == []
        rig.rig.clock.advance(1_000)
        assert await names(duration_filter=999) == [TX]

    async def test_stranger_has_no_right(self, rig: TransactionRig) -> None:
        await rig.init()
        await rig.rig.allow("eve", Operation.READ, "topic", "")
        session = rig.rig.login("eve")
        denied = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        kind = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic

        described = await rig.ask(
            "describe_transactions", 0, session=session, transactional_ids=[TX]
        )
        listed = await rig.ask("list_transactions", 0, session=session, **EMPTY_FILTERS)
        started = await rig.ask(
            "init_producer_id",
            4,
            session=session,
            transactional_id=TX,
            transaction_timeout_ms=1_000,
        )
        added = await rig.ask(
            "add_partitions_to_txn",
            3,
            session=session,
            v3_and_below_transactional_id=TX,
            v3_and_below_topics=[kind(name="t", partitions=[0])],
        )
        ended = await rig.ask("end_txn", 3, session=session, transactional_id=TX)

        assert described.transaction_states[0].error_code.value == denied
        assert listed.transaction_states == ()
        assert started.error_code.value == denied
        assert ended.error_code.value == denied
        [topic] = added.results_by_topic_v3_and_below
        assert topic.results_by_partition[0].partition_error_code.value == denied
