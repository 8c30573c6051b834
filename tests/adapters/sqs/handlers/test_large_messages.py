"""Messages of 1 MiB in any encoding of clients."""

import asyncio
import http.client
import re
from typing import Any
from urllib.parse import quote

import pytest

from tests.adapters.sqs.handlers.messages import bodies, send
from tests.adapters.sqs.handlers.serving import Live

MIB = 1_048_576
BATCH = 8

# One character each: of JSON's longest escapes, of forms' and of several bytes.
CHARACTERS = {
    "delete": "\x7f",  # six bytes for one, as boto3 writes it
    "newline": "\n",
    "quote": '"',
    "cyrillic": "ж",
    "chinese": "漢",
}


def text(character: str, size_bytes: int) -> str:
    """Return a text of that many bytes, of one character as far as it goes."""
    count, rest = divmod(size_bytes, len(character.encode()))
    return character * count + "x" * rest


@pytest.fixture(params=CHARACTERS)
def character(request: pytest.FixtureRequest) -> str:
    return CHARACTERS[request.param]


def _post(live: Live, fields: dict[str, str]) -> tuple[int, str]:
    body = "&".join(f"{quote(name)}={quote(value, safe='')}" for name, value in fields.items())
    connection = http.client.HTTPConnection("127.0.0.1", live.adapter.listener.port, timeout=30)
    try:
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        connection.request("POST", "/", body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


async def form(live: Live, action: str, **fields: str) -> tuple[int, str]:
    """Return status and body of a request in the Query protocol."""
    return await asyncio.to_thread(_post, live, {"Action": action, **fields})


def codes(body: str) -> list[str]:
    return re.findall("<Code>(.*?)</Code>", body)


def form_entries(body: str, count: int) -> dict[str, str]:
    fields = {}
    for number in range(1, count + 1):
        fields[f"SendMessageBatchRequestEntry.{number}.Id"] = str(number)
        fields[f"SendMessageBatchRequestEntry.{number}.MessageBody"] = body
    return fields


async def test_1_mib_of_any_character_is_taken_and_one_byte_more_is_not(
    live: Live, character: str
) -> None:
    url = await live.queue()
    body = text(character, MIB)

    await send(live, url, body)
    refused = await live.refused("send_message", QueueUrl=url, MessageBody=body + "x")

    assert (refused.code, refused.status) == ("InvalidParameterValue", 400)
    assert await bodies(live, url) == [body]


async def test_a_batch_of_1_mib_is_taken_and_one_byte_more_is_not(
    live: Live, character: str
) -> None:
    url = await live.queue()
    body = text(character, MIB // BATCH)
    entries = [{"Id": str(number), "MessageBody": body} for number in range(BATCH)]

    sent = await live.call("send_message_batch", QueueUrl=url, Entries=entries)
    larger = [{**entries[0], "MessageBody": body + "x"}, *entries[1:]]
    refused = await live.refused("send_message_batch", QueueUrl=url, Entries=larger)

    assert (len(sent["Successful"]), sent.get("Failed", [])) == (BATCH, [])
    assert refused.code == "AWS.SimpleQueueService.BatchRequestTooLong"
    assert await bodies(live, url) == [body] * BATCH


async def test_a_form_may_have_1_mib_and_not_one_byte_more(live: Live, character: str) -> None:
    url = await live.queue()
    body = text(character, MIB)

    status, _ = await form(live, "SendMessage", QueueUrl=url, MessageBody=body)
    too_long = await form(live, "SendMessage", QueueUrl=url, MessageBody=body + "x")

    assert (status, too_long[0]) == (200, 400)
    assert codes(too_long[1]) == ["InvalidParameterValue"]
    assert await bodies(live, url) == [body]


async def test_a_batch_in_a_form_may_have_1_mib_and_not_one_byte_more(
    live: Live, character: str
) -> None:
    url = await live.queue()
    body = text(character, MIB // BATCH)
    entries = form_entries(body, BATCH)

    status, _ = await form(live, "SendMessageBatch", QueueUrl=url, **entries)
    entries["SendMessageBatchRequestEntry.1.MessageBody"] += "x"
    too_long = await form(live, "SendMessageBatch", QueueUrl=url, **entries)

    assert (status, too_long[0]) == (200, 400)
    assert codes(too_long[1]) == ["AWS.SimpleQueueService.BatchRequestTooLong"]
    assert await bodies(live, url) == [body] * BATCH


@pytest.mark.parametrize("byte", [b"\x00", b"\xfb\xef\xbe"])  # "+" and "/" triple in a form
async def test_nearly_all_of_1_mib_may_be_a_binary_attribute(live: Live, byte: bytes) -> None:
    url = await live.queue()
    value = (byte * MIB)[: MIB - len("xbBinary")]
    attributes: dict[str, Any] = {"b": {"DataType": "Binary", "BinaryValue": value}}

    await send(live, url, "x", MessageAttributes=attributes)
    refused = await live.refused(
        "send_message", QueueUrl=url, MessageBody="xx", MessageAttributes=attributes
    )

    assert refused.code == "InvalidParameterValue"


async def test_what_is_far_too_large_is_told_so_in_the_clients_protocol(live: Live) -> None:
    url = await live.queue()
    body = "\x7f" * (2 * MIB)

    refused = await live.refused("send_message", QueueUrl=url, MessageBody=body)
    status, answer = await form(live, "SendMessage", QueueUrl=url, MessageBody=2 * body)

    assert (refused.code, refused.status) == ("RequestEntityTooLarge", 413)
    assert refused.message
    assert (status, codes(answer)) == (413, ["RequestEntityTooLarge"])
