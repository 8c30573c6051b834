"""Transactional batches and markers in a partition: what is taken, and what readers see when."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from features import open_transactions
from gateway.errors import (
    CoordinatorFenced,
    InvalidRecord,
    InvalidTransactionState,
    OutOfOrderSequence,
    ProducerFenced,
)
from gateway.model import Buffer, parse_batch_header
from gateway.partition import Partition
from gateway.records.codec import decode_batch
from gateway.records.markers import Marker
from gateway.writer import Duplicate
from tests.gateway.kernel_in_memory import House, running
from tests.gateway.test_tail import Watcher, start_append
from tests.gateway.transactional_producer import TransactionalProducer
from tests.support.batches import sample_batch
from tests.support.waiting import turns


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with running(tmp_path) as house:
        yield house


def kinds(house: House, partition: Partition) -> str:
    """Return what readers see: a letter for each batch; aborted data and markers are dots."""
    batches = house.broker.read(partition, partition.log_start_offset, bytes_max=1 << 30)
    headers = [parse_batch_header(batch) for batch in batches or ()]
    return "".join("." if header.is_control else "d" for header in headers)


async def test_a_transactional_batch_needs_a_producer_that_may_write_them(house: House) -> None:
    partition = await house.partition("t")
    batch = sample_batch(
        producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    with pytest.raises(InvalidRecord):
        house.broker.prepare(partition, bytearray(batch))
    with pytest.raises(InvalidRecord):
        house.broker.prepare(
            partition, sample_batch(is_transactional=True), transaction_version=2
        )


async def test_readers_wait_at_an_open_transaction_and_skip_an_aborted_one(
    house: House,
) -> None:
    partition = await house.partition("t")
    start_append(house, partition)
    one = TransactionalProducer(house, partition, 1)
    two = TransactionalProducer(house, partition, 2)
    await one.write()
    await two.write(count=2)
    start_append(house, partition)
    await turns()
    assert (partition.stable_end, partition.high_watermark) == (1, 5)
    assert kinds(house, partition) == "d"

    await one.end(is_commit=False)
    assert (partition.stable_end, partition.high_watermark) == (2, 6)
    assert kinds(house, partition) == "d."

    await two.end(is_commit=True)
    assert (partition.stable_end, partition.high_watermark) == (7, 7)
    assert kinds(house, partition) == "d.dd.."


async def test_a_marker_counts_when_it_is_durable(house: House) -> None:
    partition = await house.partition("t")
    producer = TransactionalProducer(house, partition, 1)
    await producer.write()

    producer.start_end(is_commit=True)
    start_append(house, partition)
    assert (partition.stable_end, partition.high_watermark) == (0, 1)
    await turns()

    assert partition.stable_end == partition.high_watermark == 3


async def test_a_tail_waits_for_the_end_of_a_transaction(house: House) -> None:
    partition = await house.partition("t")
    producer = TransactionalProducer(house, partition, 1)
    watcher = Watcher()
    house.broker.tail(partition, 0, watcher)
    await turns()
    await producer.write()
    start_append(house, partition)
    await turns()
    assert watcher.offsets == []

    await producer.end(is_commit=True)
    start_append(house, partition)
    await turns(12)

    assert watcher.offsets == [0, 1, 2, 3]


async def test_a_read_is_repeated_when_compaction_forgets_an_aborted_transaction(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_transactions, "CHUNK_RANGES", 1)
    partition = await house.partition("t")
    producer = TransactionalProducer(house, partition, 1)
    await producer.write()
    await producer.end(is_commit=False)
    await producer.write(b"committed")
    await producer.end(is_commit=True)
    transactions = partition.transactions
    assert transactions is not None
    read = house.storage.read

    async def read_while_compacted(
        partition_id: int, start: int, end: int, *, bytes_max: int
    ) -> list[Buffer]:
        found = await read(partition_id, start, end, bytes_max=bytes_max)
        if transactions.cleaned_end:
            return found[1:]
        transactions.cleaned_end = 2
        transactions.trim(0)
        return found

    monkeypatch.setattr(house.storage, "read", read_while_compacted)
    for batches in (
        await house.broker.read_disk(partition, 0, bytes_max=1 << 20),
        await house.broker.read_unchecked(partition, 0, 4, bytes_max=1 << 20),
    ):
        records = [one.value for batch in batches for one in decode_batch(batch)]
        assert records == [b"committed"]


async def test_a_plain_batch_within_a_transaction_of_its_producer_is_refused(
    house: House,
) -> None:
    partition = await house.partition("t")
    producer = TransactionalProducer(house, partition, 7)
    await producer.write()
    batch = sample_batch(producer_id=7, producer_epoch=0, base_sequence=1)
    with pytest.raises(InvalidTransactionState):
        house.broker.prepare(partition, batch)


async def test_a_first_batch_with_an_epoch_of_its_own_begins_at_0(house: House) -> None:
    partition = await house.partition("t")
    producer = TransactionalProducer(house, partition, 7)
    producer.sequence = 3
    with pytest.raises(OutOfOrderSequence):
        producer.prepare()
    producer.version = 1
    producer.prepare()


async def test_a_topic_that_delays_takes_no_transactional_batch(house: House) -> None:
    partition = await house.partition("t", delay_enable="true")
    with pytest.raises(InvalidRecord):
        TransactionalProducer(house, partition, 7).prepare()


async def test_sequences_begin_again_with_the_epoch_and_go_on_without(house: House) -> None:
    partition = await house.partition("t")
    bumped = TransactionalProducer(house, partition, 1)
    kept = TransactionalProducer(house, partition, 2, version=1)
    for producer in (bumped, kept):
        await producer.write(count=3)
        await producer.end(is_commit=True)
        producer.prepare()
        producer.sequence += 1
        with pytest.raises(OutOfOrderSequence):
            producer.prepare()
    kept.sequence = 0
    assert isinstance(kept.prepare(count=3), Duplicate)  # as the last five are remembered


async def test_a_batch_of_an_epoch_before_a_marker_is_fenced(house: House) -> None:
    partition = await house.partition("t")
    producer = TransactionalProducer(house, partition, 7)
    await producer.write()
    await producer.end(is_commit=False)
    producer.epoch -= 1
    producer.sequence = 1
    with pytest.raises(ProducerFenced):
        producer.prepare()


async def test_a_marker_sent_again_changes_nothing(house: House) -> None:
    partition = await house.partition("t")
    producer = TransactionalProducer(house, partition, 7)
    await producer.write()
    assert await producer.end(is_commit=False) is not None
    end = partition.high_watermark
    producer.epoch -= 1
    assert await producer.end(is_commit=False) is None
    assert partition.high_watermark == partition.stable_end == end

    first_version = TransactionalProducer(house, partition, 8, version=1)
    await first_version.write()
    for _ in range(2):
        await first_version.end(is_commit=True)
    assert partition.stable_end == partition.high_watermark == end + 3
    assert partition.transactions is not None
    assert len(partition.transactions.aborted) == 1


async def test_markers_of_old_epochs_and_old_coordinators_are_refused(house: House) -> None:
    partition = await house.partition("t")
    producer = TransactionalProducer(house, partition, 7)
    await producer.write()
    await producer.end(is_commit=True, coordinator_epoch=4)
    await producer.write()

    def prepare(epoch: int, coordinator_epoch: int, version: int = 2) -> None:
        marker = Marker(7, epoch, is_commit=True, coordinator_epoch=coordinator_epoch)
        house.broker.prepare_marker(partition, marker, transaction_version=version)

    with pytest.raises(ProducerFenced):
        prepare(0, 4)
    with pytest.raises(ProducerFenced):
        prepare(1, 4)  # the epoch of the open transaction
    with pytest.raises(CoordinatorFenced):
        prepare(2, 3)
    prepare(1, 4, version=1)
    prepare(2, 4)
