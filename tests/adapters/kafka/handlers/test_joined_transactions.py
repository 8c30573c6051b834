"""Batches of transactions that another node coordinates: joined first, then appended."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapters.kafka.errors import ErrorCode
from adapters.kafka.producing.batch_appends import Outcomes, append_batches, join_transaction
from adapters.kafka.producing.produce_results import produce_results
from adapters.kafka.producing.producer_transaction import ProducerTransaction
from features.transactions import PartitionRef
from gateway.errors import GatewayError, InvalidTransactionState, NotLeader, ProducerFenced
from gateway.transactions.joins import Join
from tests.adapters.kafka.handlers.group_fixture import GroupRig
from tests.adapters.kafka.handlers.handler_fixture import running
from tests.adapters.kafka.handlers.transaction_fixture import NONE, TX, TransactionRig
from tests.support.batches import sample_batch

V1, V2 = 11, 12
"""Versions of Produce, by the version of the transaction protocol."""


class Away:
    """Producer whose coordinator is another node, which answers as the test says."""

    def __init__(self, rig: TransactionRig, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rig = rig
        self.joins: list[Join] = []
        self.refusal: GatewayError | None = None
        coordinator = rig.rig.node.transactions
        monkeypatch.setattr(coordinator.owners, "owns", lambda _name: False)
        monkeypatch.setattr(coordinator.joins, "join", self._join)

    async def _join(self, join: Join) -> None:
        self.joins.append(join)
        if self.refusal is not None:
            raise self.refusal

    async def produce(
        self, version: int = V2, *, sequence: int = 0, epoch: int = 0, joins: bool = True
    ) -> int:
        """Return the error code of a batch for partition 0."""
        session = self.rig.rig.session
        batch = sample_batch(
            producer_id=7, producer_epoch=epoch, base_sequence=sequence, is_transactional=True
        )
        topics = [("t", [(0, memoryview(batch)), (99, memoryview(batch)), (1, None)])]
        transaction: ProducerTransaction | GatewayError
        transaction = ProducerTransaction(session, TX, version)
        assert transaction.must_join
        if joins:
            transaction = await join_transaction(session, topics, transaction)
        outcomes: Outcomes = []
        done: asyncio.Future[GatewayError | None] = asyncio.Future()
        append_batches(session, topics, transaction, version, outcomes, (), done.set_result)
        [(_, results)] = produce_results(outcomes, await done)
        return int(results[0].error_code)


@pytest.fixture
async def away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Away]:
    async with running(tmp_path) as one:
        topic = await one.topic("t", partitions=3)
        yield Away(TransactionRig(await GroupRig.open(one), topic), monkeypatch)


@pytest.mark.parametrize(("version", "adds"), [(V1, False), (V2, True)])
async def test_first_batch_of_a_partition_joins(
    away: Away,
    version: int,
    adds: bool,  # noqa: FBT001 - a parameter
) -> None:
    codes = [await away.produce(version, sequence=number) for number in range(3)]

    assert codes == [NONE] * 3
    [join] = away.joins
    assert join.partitions == (PartitionRef(away.rig.topic.uuid, 0),)
    assert (join.producer_id, join.epoch, join.adds) == (7, 0, adds)
    assert away.rig.rig.partition(away.rig.topic, 0).stable_end == 0


async def test_batch_of_another_epoch_joins_anew(away: Away) -> None:
    await away.produce()

    assert await away.produce(epoch=1) == NONE
    assert [join.epoch for join in away.joins] == [0, 1]


async def test_batch_that_has_not_joined_is_refused(away: Away) -> None:
    """As when the coordinator has left this node since the request began."""
    assert await away.produce(joins=False) == ErrorCode.NOT_ENOUGH_REPLICAS


@pytest.mark.parametrize(
    ("refusal", "version", "code"),
    [
        (NotLeader("too late"), V2, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ProducerFenced("old"), V2, ErrorCode.INVALID_PRODUCER_EPOCH),
        (InvalidTransactionState("not added"), V1, ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
async def test_coordinator_that_refuses_is_quoted(
    away: Away, refusal: GatewayError, version: int, code: ErrorCode
) -> None:
    away.refusal = refusal

    assert await away.produce(version) == code
    assert away.rig.rig.partition(away.rig.topic, 0).log_end_offset == 0
