"""The header X-Amzn-Trace-Id of a send becomes the message's AWSTraceHeader."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.adapters.sqs.handlers.messages import fields, receive, receive_one, send
from tests.adapters.sqs.handlers.serving import Live

TRACE = "Root=1-3152b799-8954dae64eda91bc9a23a7e8;Parent=7fa8c0f79203be72;Sampled=1"
OWN = "Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=0"
WANTED: dict[str, Any] = {"MessageSystemAttributeNames": ["AWSTraceHeader"]}


@pytest.fixture
def traced(live: Live) -> Iterator[Live]:
    """The client's requests have the header, as those of instrumented SDKs."""

    def add(request: Any, **_: Any) -> None:
        request.headers["X-Amzn-Trace-Id"] = TRACE

    live.boto.meta.events.register("before-sign.sqs", add)
    yield live
    live.boto.meta.events.unregister("before-sign.sqs", add)


async def test_message_has_it(traced: Live) -> None:
    url = await traced.queue()
    answer = await send(traced, url)

    message = await receive_one(traced, url, **WANTED)

    assert message["Attributes"] == {"AWSTraceHeader": TRACE}
    assert "MD5OfMessageSystemAttributes" not in answer  # it is of what the sender has given


async def test_all_messages_of_a_batch_have_it(traced: Live) -> None:
    url = await traced.queue()
    entries = [{"Id": name, "MessageBody": name} for name in ("a", "b")]
    await traced.call("send_message_batch", QueueUrl=url, Entries=entries)

    messages = await receive(traced, url, **WANTED)

    assert [one["Attributes"] for one in messages] == [{"AWSTraceHeader": TRACE}] * 2


async def test_message_of_a_fifo_queue_has_it(traced: Live) -> None:
    url = await traced.queue("orders.fifo")
    await send(traced, url, MessageGroupId="g", MessageDeduplicationId="d")

    message = await receive_one(traced, url, **WANTED)

    assert message["Attributes"] == {"AWSTraceHeader": TRACE}


async def test_what_the_message_says_itself_comes_first(traced: Live) -> None:
    url = await traced.queue()
    answer = await send(traced, url, MessageSystemAttributes={"AWSTraceHeader": fields(OWN)})

    message = await receive_one(traced, url, **WANTED)

    assert message["Attributes"] == {"AWSTraceHeader": OWN}
    assert "MD5OfMessageSystemAttributes" in answer


async def test_without_the_header_there_is_none(live: Live) -> None:
    url = await live.queue()
    await send(live, url)

    assert "Attributes" not in await receive_one(live, url, **WANTED)
