"""Produce to topics with ``delay.enable``: delayed records get offsets later, none is lost."""

from pathlib import Path

from gateway.model import TopicName
from gateway.records.codec import decode_batch, encode_batch
from gateway.topics.manager import Topic
from tests.adapters.kafka.running_adapter import Live, produce, running
from tests.support.kafka_wire import PRODUCE, produce_body, produce_errors, request
from tests.support.waiting import until

ORDERS = TopicName("default", "orders")
LATER_MS = 60_000
INVALID_RECORD = 87
POLICY_VIOLATION = 44


async def delaying(live: Live, **configs: str) -> Topic:
    wanted = {key.replace("_", "."): value for key, value in configs.items()}
    return await live.kernel.topics.alter_configs(ORDERS, {"delay.enable": "true", **wanted})


def batch_of(live: Live, *afters_ms: int | None, producer: int = -1) -> bytes:
    """Return a batch of numbered records with a delay each."""
    now_unix_ms = live.kernel.clock.unix_ms()
    records = [
        (
            now_unix_ms,
            None,
            b"%d" % number,
            [] if after_ms is None else [("deliver-at", b"%d" % (now_unix_ms + after_ms))],
        )
        for number, after_ms in enumerate(afters_ms)
    ]
    epoch, sequence = (-1, -1) if producer < 0 else (0, 0)
    return bytes(
        encode_batch(
            records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence
        )
    )


def stored(live: Live, number: int = 0) -> list[bytes | None]:
    partition = live.kernel.broker.partition(live.kernel.topics.get(ORDERS), number)
    batches = live.kernel.broker.read(partition, 0, bytes_max=1 << 20) or ()
    return [record.value for batch in batches for record in decode_batch(batch)]


async def due(live: Live) -> None:
    delays = live.kernel.delays
    live.kernel.clock.advance(LATER_MS)  # type: ignore[attr-defined]  # a ManualClock
    delays.run()
    await until(lambda: not delays.is_busy)


async def test_what_waits_is_answered_with_no_offset(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await delaying(live)
        client = await live.client()
        body = produce_body(
            [("orders", 0, batch_of(live, None, LATER_MS)), ("orders", 1, batch_of(live, None))]
        )

        client.send(request(PRODUCE, 3, 1, body))
        answer = (await client.answer())[1]
        before = stored(live)
        await due(live)

        assert produce_errors(answer) == [(0, -1), (0, 0)]
        assert before == [b"0"]
        assert stored(live) == [b"0", b"1"]


async def test_without_the_config_nothing_waits(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await live.client()

        client.send(produce(1, batch_of(live, LATER_MS)))

        assert produce_errors((await client.answer())[1]) == [(0, 0)]
        assert stored(live) == [b"0"]
        assert live.kernel.delays.total == 0


async def test_a_batch_that_is_sent_twice_waits_once(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await delaying(live)
        client = await live.client()
        batch = batch_of(live, LATER_MS, LATER_MS, producer=9)

        client.send(produce(1, batch), produce(2, batch))
        answers = [produce_errors((await client.answer())[1]) for _ in range(2)]
        await due(live)

        assert [code for answer in answers for code, _ in answer] == [0, 0]
        assert stored(live) == [b"0", b"1"]


async def test_a_producer_that_goes_away_leaves_what_it_was_promised(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await delaying(live)
        client = await live.client()
        live.storage.held = True
        client.send(produce(1, batch_of(live, LATER_MS)))
        await until(lambda: live.storage.enqueued == 1)
        client.writer.transport.abort()
        await until(lambda: not live.adapter.listener.connections)

        live.storage.release()
        await until(lambda: live.kernel.delays.total == 1)
        await due(live)

        assert stored(live) == [b"0"]


async def test_acks_0_waits_too(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await delaying(live)
        client = await live.client()

        client.send(produce(1, batch_of(live, LATER_MS), acks=0))
        await until(lambda: live.kernel.delays.total == 1)
        await due(live)

        assert stored(live) == [b"0"]


async def test_each_partition_is_refused_by_itself(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await delaying(live, delay_max_ms="1000")
        client = await live.client()
        now_unix_ms = live.kernel.clock.unix_ms()
        garbled = bytes(encode_batch([(now_unix_ms, None, b"x", [("deliver-at", b"soon")])]))
        body = produce_body(
            [("orders", 0, garbled), ("orders", 1, batch_of(live, None, LATER_MS))]
        )

        client.send(request(PRODUCE, 3, 1, body))

        codes = [code for code, _ in produce_errors((await client.answer())[1])]
        assert codes == [INVALID_RECORD, POLICY_VIOLATION]
        assert live.kernel.delays.total == 0
        assert stored(live) == stored(live, 1) == []


async def test_what_the_storage_refuses_does_not_count(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await delaying(live)
        client = await live.client()
        roomy = live.storage._config
        live.storage._config = roomy.model_copy(update={"bytes_max": 0})
        client.send(produce(1, batch_of(live, LATER_MS)))
        refused = produce_errors((await client.answer())[1])
        live.storage._config = roomy
        client.send(produce(2, batch_of(live, LATER_MS)))
        taken = produce_errors((await client.answer())[1])

        assert refused[0][0] != 0
        assert taken == [(0, -1)]
        assert live.kernel.delays.total == 1
        assert live.kernel.delays._counts.pending_count == 0
