"""SendMessageBatch."""

from typing import Any

import pytest

from tests.adapters.sqs.handlers.messages import (
    bodies,
    fields,
    full_disk,
    let_pass,
    receive,
    records,
)
from tests.adapters.sqs.handlers.serving import Live

MIB = 1_048_576


def entry(entry_id: str, body: str = "m", **params: Any) -> dict[str, Any]:
    return {"Id": entry_id, "MessageBody": body, **params}


async def send_batch(live: Live, url: str, *entries: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = await live.call(
        "send_message_batch", QueueUrl=url, Entries=list(entries)
    )
    return answer


async def test_ten_messages_are_kept_in_order_and_each_is_answered(live: Live) -> None:
    url = await live.queue()

    answer = await send_batch(live, url, *(entry(f"id-{n}", f"body-{n}") for n in range(10)))

    messages = await receive(live, url)
    assert [one["Body"] for one in messages] == [f"body-{n}" for n in range(10)]
    assert [(one["Id"], one["MessageId"]) for one in answer["Successful"]] == [
        (f"id-{n}", message["MessageId"]) for n, message in enumerate(messages)
    ]
    assert [one["MD5OfMessageBody"] for one in answer["Successful"]] == [
        message["MD5OfBody"] for message in messages
    ]
    assert not answer.get("Failed")


async def test_plain_messages_of_a_batch_share_one_append(live: Live) -> None:
    url = await live.queue()
    await send_batch(live, url, entry("a"))
    enqueued = live.storage.enqueued

    await send_batch(live, url, *(entry(str(number)) for number in range(10)))

    assert live.storage.enqueued == enqueued + 1


async def test_entries_that_are_not_legal_fail_alone(live: Live) -> None:
    url = await live.queue()

    answer = await send_batch(
        live,
        url,
        entry("good", "kept", MessageAttributes={"a": fields("v")}),
        entry("control", "a\x00"),
        entry("delay", DelaySeconds=901),
        entry("empty", ""),
        entry("last", "kept too"),
    )

    assert [one["Id"] for one in answer["Successful"]] == ["good", "last"]
    assert [(one["Id"], one["Code"], one["SenderFault"]) for one in answer["Failed"]] == [
        ("control", "InvalidMessageContents", True),
        ("delay", "InvalidParameterValue", True),
        ("empty", "MissingParameter", True),
    ]
    assert sorted(await bodies(live, url)) == ["kept", "kept too"]


async def test_batch_of_which_nothing_is_legal_is_answered(live: Live) -> None:
    url = await live.queue()

    answer = await send_batch(live, url, entry("a", "\x00"))

    assert not answer.get("Successful")
    assert [one["Id"] for one in answer["Failed"]] == ["a"]


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        ([], "AWS.SimpleQueueService.EmptyBatchRequest"),
        (
            [entry(str(n)) for n in range(11)],
            "AWS.SimpleQueueService.TooManyEntriesInBatchRequest",
        ),
        ([entry("a"), entry("a")], "AWS.SimpleQueueService.BatchEntryIdsNotDistinct"),
        ([entry("a.b")], "AWS.SimpleQueueService.InvalidBatchEntryId"),
        (
            [entry("a", "x" * (MIB // 2)), entry("b", "x" * (MIB // 2 + 1))],
            "AWS.SimpleQueueService.BatchRequestTooLong",
        ),
        (
            [
                entry(
                    "a",
                    MessageAttributes={
                        "a": {"DataType": "String", "StringListValues": ["x"]},
                    },
                )
            ],
            None,
        ),
    ],
)
async def test_batch_that_breaks_a_rule_is_refused_as_a_whole(
    live: Live, entries: list[dict[str, Any]], code: str | None
) -> None:
    url = await live.queue()
    if code is None:  # an entry's own fault
        answer = await send_batch(live, url, *entries)
        assert answer["Failed"][0]["Code"] == "AWS.SimpleQueueService.UnsupportedOperation"
        return

    refused = await live.refused("send_message_batch", QueueUrl=url, Entries=entries)

    assert (refused.code, refused.status) == (code, 400)
    assert records(live) == []


async def test_batch_of_1_mib_is_taken(live: Live) -> None:
    url = await live.queue()

    answer = await send_batch(
        live, url, entry("a", "x" * (MIB // 2)), entry("b", "x" * (MIB // 2))
    )

    assert len(answer["Successful"]) == 2


async def test_messages_that_wait_and_messages_that_do_not_share_a_batch(live: Live) -> None:
    url = await live.queue()

    answer = await send_batch(
        live, url, entry("later", "later", DelaySeconds=5), entry("now", "now")
    )

    assert [one["Id"] for one in answer["Successful"]] == ["later", "now"]
    assert await bodies(live, url) == ["now"]
    await let_pass(live, 5)
    assert await bodies(live, url, WaitTimeSeconds=20) == ["later"]


async def test_full_disk_fails_the_whole_batch_so_that_clients_repeat_it(live: Live) -> None:
    url = await live.queue()

    with full_disk(live):
        refused = await live.refused(
            "send_message_batch", QueueUrl=url, Entries=[entry("a"), entry("b")]
        )

    assert refused.status == 503


async def test_fifo_batch_keeps_its_order_and_drops_repetitions(live: Live) -> None:
    url = await live.queue("orders.fifo", ContentBasedDeduplication="true")

    answer = await send_batch(
        live,
        url,
        entry("1", "a", MessageGroupId="g"),
        entry("2", "b", MessageGroupId="g"),
        entry("3", "a", MessageGroupId="g"),
        entry("4", "c", MessageGroupId="g"),
    )

    by_id = {one["Id"]: one for one in answer["Successful"]}
    assert list(by_id) == ["1", "2", "3", "4"]
    assert by_id["3"]["MessageId"] == by_id["1"]["MessageId"]
    assert by_id["3"]["SequenceNumber"] == by_id["1"]["SequenceNumber"]
    assert await bodies(live, url) == ["a", "b", "c"]


@pytest.mark.parametrize("missing", ["MessageGroupId", "MessageDeduplicationId"])
async def test_fifo_batch_without_group_or_id_is_refused_as_a_whole(
    live: Live, missing: str
) -> None:
    url = await live.queue("orders.fifo")
    good = entry("a", MessageGroupId="g", MessageDeduplicationId="1")
    bad = entry("b", MessageGroupId="g", MessageDeduplicationId="2")
    del bad[missing]

    refused = await live.refused("send_message_batch", QueueUrl=url, Entries=[good, bad])

    is_group = missing == "MessageGroupId"
    assert refused.code == ("MissingParameter" if is_group else "InvalidParameterValue")
    assert ("parameter MessageGroupId." in refused.message) is is_group
    assert records(live, "orders.fifo") == []


async def test_queue_that_is_not_there_is_refused(live: Live) -> None:
    url = f"{live.url}/000000000000/nowhere"

    refused = await live.refused("send_message_batch", QueueUrl=url, Entries=[entry("a")])

    assert refused.code == "AWS.SimpleQueueService.NonExistentQueue"
