"""Client quotas: RequestThrottled, which is without an effect and ends with its time."""

from features.quota.model import DEFAULT, Entity, QuotaKey
from tests.adapters.sqs.handlers.messages import receive, send
from tests.adapters.sqs.handlers.serving import Live

PRODUCED = QuotaKey.PRODUCER_BYTE_RATE
CONSUMED = QuotaKey.CONSUMER_BYTE_RATE
BODY = "x" * 20_000
"""Twenty seconds' worth of 1,000 bytes a second, of which ten may come at once."""


async def test_a_sender_above_its_quota_is_refused(live: Live) -> None:
    url = await live.queue()
    await live.kernel.quotas.change(Entity(DEFAULT), {PRODUCED: 1_000.0})
    await send(live, url, BODY)

    for call, params in (
        ("send_message", {"MessageBody": "y"}),
        ("send_message_batch", {"Entries": [{"Id": "1", "MessageBody": "y"}]}),
    ):
        refused = await live.refused(call, QueueUrl=url, **params)
        assert (refused.code, refused.status) == ("RequestThrottled", 403)

    await live.call("get_queue_url", QueueName=url.rsplit("/", 1)[-1])  # others are served
    live.clock.advance(11_000)
    await send(live, url, "z")
    assert {one["Body"] for one in await receive(live, url, 10)} == {BODY, "z"}


async def test_a_receiver_above_its_quota_is_refused(live: Live) -> None:
    url = await live.queue()
    await send(live, url, BODY)
    await send(live, url, "second")
    await live.kernel.quotas.change(Entity(DEFAULT), {CONSUMED: 1_000.0})
    assert len(await receive(live, url, 1)) == 1

    refused = await live.refused("receive_message", QueueUrl=url)
    assert refused.code == "RequestThrottled"
    live.clock.advance(11_000)
    assert len(await receive(live, url, 1)) == 1


async def test_a_quota_of_another_key_does_not_count(live: Live) -> None:
    url = await live.queue()
    await live.kernel.quotas.change(Entity(None, "AKIAOTHER"), {PRODUCED: 1.0})
    for _ in range(2):
        await send(live, url, BODY)
