"""ReceiveMessage of records that SQS cannot represent, and of dead letters."""

import json
from base64 import b64encode

from adapters.sqs.mapping import MESSAGE_BYTES_MAX
from adapters.sqs.messages.receive_request import OVERSIZE_ROUNDS_MAX
from tests.adapters.sqs.handlers.messages import (
    append,
    bodies,
    delete,
    let_pass,
    receive,
    receive_one,
    send,
)
from tests.adapters.sqs.handlers.serving import Live


async def make_source(live: Live, receives_max: int = 1) -> tuple[str, str]:
    """Make the queue ``orders`` with the dead-letter queue ``dead``."""
    dead = await live.queue("dead")
    policy = {"deadLetterTargetArn": live.arn("dead"), "maxReceiveCount": receives_max}
    return await live.queue("orders", RedrivePolicy=json.dumps(policy)), dead


async def test_bytes_come_in_base64_and_say_so(live: Live) -> None:
    url = await live.queue()
    await append(live, b"\x00\xff", headers=(("h", b"v"),))

    message = await receive_one(live, url)

    assert message["Body"] == b64encode(b"\x00\xff").decode()
    assert message["MessageAttributes"] == {
        "sqs.body": {"DataType": "String", "StringValue": "base64"}
    }


async def test_null_comes_empty_and_says_so(live: Live) -> None:
    url = await live.queue()
    await append(live, None)

    message = await receive_one(live, url)

    assert message["Body"] == ""
    assert message["MessageAttributes"]["sqs.body"]["StringValue"] == "null"


async def test_more_than_ten_headers_come_in_one_more_attribute(live: Live) -> None:
    url = await live.queue()
    await append(live, b"v", headers=tuple((f"h{number}", b"v") for number in range(12)))

    message = await receive_one(live, url, MessageAttributeNames=["All"])

    more = json.loads(message["MessageAttributes"].pop("sqs.headers")["StringValue"])
    assert len(message["MessageAttributes"]) == 10
    assert more == [{"name": "h10", "value": "v"}, {"name": "h11", "value": "v"}]


async def test_too_large_record_goes_to_the_dead_letters(live: Live) -> None:
    url, dead = await make_source(live)
    await append(live, b"\xff" * 800_000)  # more than 1 MiB in base64
    await append(live, b"small")

    assert await bodies(live, url, WaitTimeSeconds=20) == ["small"]
    message = await receive_one(live, dead, WaitTimeSeconds=20, MessageAttributeNames=["All"])
    assert message["Body"] == ""
    mark = message["MessageAttributes"]["sqs.body"]["StringValue"]
    assert mark == "oversize topic=dead partition=0 offset=0 bytes=800000"
    assert live.kept("dead").counts().in_flight == 1


async def test_receive_goes_on_behind_what_is_too_large_but_not_for_ever(live: Live) -> None:
    url, _ = await make_source(live)
    for _ in range(OVERSIZE_ROUNDS_MAX + 1):
        await append(live, b"x" * (MESSAGE_BYTES_MAX + 1))
    await append(live, b"small")

    assert await receive(live, url, 1) == []
    message = await receive_one(live, url)

    assert message["Body"] == "small"


async def test_too_large_record_without_dead_letters_says_where_it_lies(live: Live) -> None:
    url = await live.queue()
    await append(live, b"\xff" * 800_000, headers=(("h", b"v"),))

    message = await receive_one(live, url)

    mark = message["MessageAttributes"]["sqs.body"]["StringValue"]
    assert (message["Body"], mark) == (
        "",
        "oversize topic=orders partition=0 offset=0 bytes=800000",
    )
    await delete(live, url, message)


# --- dead letters


async def test_dead_letter_keeps_id_time_and_count_and_says_whence_it_came(
    live: Live,
) -> None:
    url, dead = await make_source(live)
    sent = await send(live, url, "poison")
    sent_unix_ms = live.clock.unix_ms()
    await receive_one(live, url)
    await let_pass(live, 30)

    assert await receive(live, url) == []

    message = await receive_one(
        live, dead, WaitTimeSeconds=20, MessageSystemAttributeNames=["All"]
    )
    assert (message["MessageId"], message["Body"]) == (sent["MessageId"], "poison")
    attributes = message["Attributes"]
    assert attributes["DeadLetterQueueSourceArn"] == live.arn("orders")
    assert attributes["ApproximateReceiveCount"] == "2"
    assert attributes["SentTimestamp"] == str(sent_unix_ms)
