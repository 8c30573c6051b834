"""Streams on the log: retention, other protocols' topics, the disk, transactions, ends."""

from pathlib import Path

from adapters.amqp.stream_batches import KEPT_BYTES_MAX
from adapters.amqp.streams import STREAM_CONFIG
from adapters.amqp.v091.fields import Field, Table
from adapters.amqp.v091.methods.basic import (
    BasicConsume,
    BasicConsumeOk,
    BasicQos,
    BasicQosOk,
)
from adapters.amqp.v091.methods.channel import ChannelClose
from adapters.amqp.v091.methods.queue import QueueDeclareOk, QueueDelete, QueueDeleteOk
from adapters.amqp.v091.stream_consumer import StreamConsumer
from gateway.model import TopicName
from tests.adapters.amqp.conformance.methods import declare
from tests.adapters.amqp.in_process import AmqpInProcess, Peer, amqp_in_process, published
from tests.support.waiting import until

STREAM = ("x-queue-type", Field("S", "stream"))
TOPIC = TopicName("default", "s")


async def declared(amqp: AmqpInProcess, *more: tuple[str, Field]) -> Peer:
    peer = await amqp.peer().open(1)
    peer.send(1, declare("s", Table([STREAM, *more])))
    await peer.read(QueueDeclareOk)
    return peer


async def consuming(peer: Peer, prefetch: int = 10) -> None:
    peer.send(1, BasicQos(0, prefetch, global_=False))
    await peer.read(BasicQosOk)
    first = Table([("x-stream-offset", Field("S", "first"))])
    flags = dict.fromkeys(("no_local", "no_ack", "exclusive", "nowait"), False)
    peer.send(1, BasicConsume(0, "s", "c", arguments=first, **flags))


async def test_retention_is_that_of_the_arguments(tmp_path: Path) -> None:
    async with amqp_in_process(tmp_path) as amqp:
        await declared(
            amqp, ("x-max-age", Field("S", "7D")), ("x-max-length-bytes", Field("l", 5_000))
        )
        settings = amqp.node.kernel.topics.get(TOPIC).settings
        assert settings.deletes
        assert (settings.retention_ms, settings.retention_bytes) == (604_800_000, 5_000)


async def test_stream_without_arguments_keeps_everything(tmp_path: Path) -> None:
    async with amqp_in_process(tmp_path) as amqp:
        await declared(amqp)
        settings = amqp.node.kernel.topics.get(TOPIC).settings
        assert (settings.retention_ms, settings.retention_bytes) == (-1, -1)


async def test_topic_that_is_there_becomes_a_stream_and_outlives_it(tmp_path: Path) -> None:
    async with amqp_in_process(tmp_path) as amqp:
        topics = amqp.node.kernel.topics
        await topics.create(TOPIC, partitions=1, configs={"retention.ms": "60000"})
        peer = await declared(amqp)
        topic = topics.get(TOPIC)
        assert topic.settings.retention_ms == 60_000
        assert topic.settings.contributed[STREAM_CONFIG]
        await consuming(peer)
        await peer.read(BasicConsumeOk)
        peer.send(1, QueueDelete(0, "s", if_unused=False, if_empty=False, nowait=False))
        await peer.read(QueueDeleteOk)
        assert topics.get(TOPIC) is topic
        assert not topic.settings.contributed[STREAM_CONFIG]
        channel = peer.connection.channels.find(1)
        assert channel is not None
        assert not channel.consumers


async def test_topic_of_several_partitions_is_no_stream(tmp_path: Path) -> None:
    async with amqp_in_process(tmp_path) as amqp:
        await amqp.node.kernel.topics.create(TOPIC, partitions=2)
        peer = await amqp.peer().open(1)
        peer.send(1, declare("s", Table([STREAM])))
        closed = await peer.read(ChannelClose)
        assert closed.reply_text == "PRECONDITION_FAILED - topic s has 2 partitions"


async def test_consumer_whose_start_was_deleted_goes_on_behind_it(tmp_path: Path) -> None:
    async with amqp_in_process(tmp_path) as amqp:
        peer = await declared(amqp)
        kernel = amqp.node.kernel
        for number in range(4):
            peer.send_bytes(published(1, "s", b"%d" % number))
            await peer.frames()
        await consuming(peer, prefetch=1)
        channel = peer.connection.channels.find(1)
        assert channel is not None
        await until(lambda: channel.unacked.count == 1)
        consumer = channel.consumers["c"]
        assert isinstance(consumer, StreamConsumer)
        partition = kernel.broker.partition(kernel.topics.get(TOPIC), 0)
        kernel.broker.truncate_before(partition, 3, lambda _error: None)
        amqp.node.streams.batches._kept.clear()
        await until(lambda: partition.log_start_offset == 3)
        peer.send(1, BasicQos(0, 10, global_=False))
        channel.ack(1, multiple=False)
        channel.settle()
        await until(lambda: consumer.offset == 4)


async def test_client_that_does_not_read_holds_no_messages(tmp_path: Path) -> None:
    async with amqp_in_process(tmp_path) as amqp:
        peer = await declared(amqp)
        other = await amqp.peer().open(1)
        for _ in range(40):
            other.send_bytes(published(1, "s", bytes(100_000)))
            await other.frames()
        await consuming(peer, prefetch=1_000)
        peer.connection.pause_writing()
        await other.frames()
        assert peer.connection.out_bytes < 1_000
        assert amqp.node.streams.batches.kept_bytes == 0
        peer.connection.resume_writing()
        channel = peer.connection.channels.find(1)
        assert channel is not None
        await until(lambda: channel.unacked.count == 40)
        assert amqp.node.streams.batches.kept_bytes <= KEPT_BYTES_MAX
        peer.lose()
        assert not amqp.node.streams._receivers
