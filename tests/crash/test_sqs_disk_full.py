"""A full disk under SQS: sends are refused, receives and deletes work, and it ends with room."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.small_disk import DISK_BYTES
from tests.support.sqs_gateway import SqsGateway
from tests.support.sqs_raw import JsonClient, Refused, Result
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.crash,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk"),
]

SEGMENT_BYTES = 4 << 20
AGAIN_S_MAX = 60
LEASE_S = "2"
FILLER = "0123456789abcdef" * 6_400
MESSAGES_MAX = 2 * DISK_BYTES // len(FILLER)


@pytest.fixture
def gateway(small_disk: Path, ballast: Path) -> Iterator[SqsGateway]:
    assert ballast.exists()
    settings = {
        "storage.segment_bytes": SEGMENT_BYTES,
        "storage.reserve_bytes": SEGMENT_BYTES // 2,
    }
    with SqsGateway(small_disk / "data", settings) as running:
        yield running


@pytest.fixture
def client(gateway: SqsGateway) -> Iterator[JsonClient]:
    with JsonClient(gateway.sqs_port) as opened:
        yield opened


def refusal(client: JsonClient, url: str, body: str = FILLER, **more: object) -> str:
    """Send; return the code when that is refused, nothing when it is taken."""
    try:
        client.call("SendMessage", QueueUrl=url, MessageBody=body, **more)
    except Refused as error:
        return error.code
    return ""


def successful(client: JsonClient, url: str, entries: list[dict[str, str]]) -> list[Result]:
    """Send a batch; return the entries that were taken."""
    try:
        found = client.call("SendMessageBatch", QueueUrl=url, Entries=entries)
    except Refused:
        return []
    return list(found.get("Successful", []))


def fill(client: JsonClient) -> None:
    """Send to a queue that nobody reads until that is refused."""
    url = client.made("filler")
    for taken in range(MESSAGES_MAX):
        if code := refusal(client, url):
            assert code == "ServiceUnavailable"
            assert taken > 0
            return
    pytest.fail("the disk took more than it has")


def receive(client: JsonClient, url: str, **more: object) -> list[Result]:
    """Receive up to ten messages, waiting a little for the first."""
    given = {"MaxNumberOfMessages": 10, "WaitTimeSeconds": 5, "AttributeNames": ["All"], **more}
    return list(client.call("ReceiveMessage", QueueUrl=url, **given).get("Messages", []))


def bodies(messages: list[Result]) -> list[str]:
    return sorted(message["Body"] for message in messages)


def delete(client: JsonClient, url: str, messages: list[Result]) -> None:
    for message in messages:
        client.call("DeleteMessage", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


def test_sends_are_refused_until_there_is_room(client: JsonClient, ballast: Path) -> None:
    url = client.made("work")
    fifo = client.made("work.fifo", FifoQueue="true")
    fill(client)

    group = {"MessageGroupId": "g", "MessageDeduplicationId": "d"}
    assert refusal(client, url) == "ServiceUnavailable"
    assert refusal(client, fifo, **group) == "ServiceUnavailable"
    entries = [{"Id": "a", "MessageBody": FILLER}, {"Id": "b", "MessageBody": FILLER}]
    assert successful(client, url, entries) == []

    ballast.unlink()
    wait_until(lambda: not refusal(client, url), within_s=AGAIN_S_MAX, what="a send is taken")
    # The id of the send that was refused is not taken for one that was kept.
    assert refusal(client, fifo, body="kept", **group) == ""
    assert bodies(receive(client, fifo)) == ["kept"]
    assert len(receive(client, url, VisibilityTimeout=30)) == 1


def test_receives_and_deletes_work_on_a_full_disk(
    gateway: SqsGateway, client: JsonClient, ballast: Path
) -> None:
    url = client.made("work", VisibilityTimeout=LEASE_S)
    for n in range(10):
        client.call("SendMessage", QueueUrl=url, MessageBody=f"{n}")
    fill(client)

    came = receive(client, url)
    delete(client, url, came[:5])
    left = bodies(came[5:])
    again = receive(client, url, VisibilityTimeout=0)
    assert set(bodies(again)) <= set(left)
    client.close()

    gateway.kill()
    ballast.unlink()
    gateway.restart()
    seen: set[str] = set()

    def all_came() -> bool:
        seen.update(bodies(receive(client, url, WaitTimeSeconds=1)))
        return seen >= set(left)

    wait_until(all_came, within_s=AGAIN_S_MAX, what="what was not deleted comes back")
    assert sorted(seen) == left


def test_a_dead_letter_waits_for_room(client: JsonClient, ballast: Path) -> None:
    """Its move does not fit: it stays in its queue, out of sight, until there is room."""
    dead = client.made("dead")
    arn = client.attribute(dead, "QueueArn")
    policy = f'{{"deadLetterTargetArn":"{arn}","maxReceiveCount":"1"}}'
    url = client.made("work", RedrivePolicy=policy)
    client.call("SendMessage", QueueUrl=url, MessageBody=FILLER)
    [message] = receive(client, url)
    fill(client)
    client.call(
        "ChangeMessageVisibility",
        QueueUrl=url,
        ReceiptHandle=message["ReceiptHandle"],
        VisibilityTimeout=0,
    )
    assert receive(client, url, WaitTimeSeconds=1) == []
    assert receive(client, dead, WaitTimeSeconds=1) == []

    ballast.unlink()
    came: list[Result] = []

    def is_moved() -> bool:
        came.extend(receive(client, url, WaitTimeSeconds=0))
        came.extend(receive(client, dead, WaitTimeSeconds=1))
        return bool(came)

    wait_until(is_moved, within_s=AGAIN_S_MAX, what="the dead letter")
    assert bodies(came) == [FILLER]
    assert came[0]["MessageId"] == message["MessageId"]
