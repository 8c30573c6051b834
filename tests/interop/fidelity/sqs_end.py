"""SQS, by boto3."""

import asyncio
from base64 import b64decode
from collections.abc import Mapping

from tests.interop.fidelity.samples import SAMPLE_HEADER, Sample, Seen, Sending, as_text
from tests.interop.sqs.calls import made, send, take
from tests.interop.sqs.programs.client_api import Endpoint, Result
from tests.interop.sqs.programs.with_boto3 import Boto3

MS_PER_S = 1_000
FIFO = ".fifo"


class SqsEnd:
    """A client of all queues. ``fifo``: names of queues that it makes."""

    def __init__(self, endpoint: Endpoint, *, fifo: tuple[str, ...]) -> None:
        self._api = Boto3(endpoint)
        self._fifo = fifo

    async def open(self) -> None:
        for name in self._fifo:
            await asyncio.to_thread(made, self._api, name, FifoQueue="true")

    async def send(self, sending: Sending) -> None:
        url = self._url(sending.topic)
        for number, sample in enumerate(sending.samples):
            more = _to_sqs(sample)
            if sending.topic.endswith(FIFO):
                more.setdefault("MessageDeduplicationId", f"{sending.key}/{number}")
            body = as_text(sample.value or b"")
            await asyncio.to_thread(
                send, self._api, url, body, MessageGroupId=sending.key, **more
            )

    async def receive(self, counts: Mapping[str, int]) -> list[Seen]:
        found = await asyncio.gather(
            *(asyncio.to_thread(self._receive, topic, count) for topic, count in counts.items())
        )
        return [seen for some in found for seen in some]

    def _receive(self, topic: str, count: int) -> list[Seen]:
        """Receive one message after the other: those of one group wait for each other."""
        url = self._url(topic)
        found: list[Seen] = []
        while len(found) < count:
            [message] = take(self._api, url)
            found.append(_seen(topic, message))
            handle = message["ReceiptHandle"]
            self._api.call("DeleteMessage", QueueUrl=url, ReceiptHandle=handle)
        return found

    def _url(self, topic: str) -> str:
        return str(self._api.call("GetQueueUrl", QueueName=topic)["QueueUrl"])

    async def close(self) -> None:
        await asyncio.to_thread(self._api.close)


def _to_sqs(sample: Sample) -> Result:
    attributes = {
        name: {"DataType": "Binary", "BinaryValue": value}
        if sample.name == "binary header" and name != SAMPLE_HEADER
        else {"DataType": "String", "StringValue": value.decode()}
        for name, value in sample.all_headers
    }
    known = (
        ("content-type", sample.content_type),
        ("correlation-id", sample.correlation),
        ("reply-to", sample.reply_to),
        ("priority", sample.priority),
    )
    attributes |= {
        name: {"DataType": "String", "StringValue": str(value)}
        for name, value in known
        if value is not None
    }
    found: Result = {"MessageAttributes": attributes}
    if sample.delay_s is not None:
        found["DelaySeconds"] = sample.delay_s
    if sample.dedup_id is not None:
        found["MessageDeduplicationId"] = sample.dedup_id
    return found


def _seen(topic: str, message: Result) -> Seen:
    shown = {
        name: one["StringValue"] if "StringValue" in one else as_text(one["BinaryValue"])
        for name, one in message.get("MessageAttributes", {}).items()
    }
    fields = {f"attribute `{name}`": value for name, value in shown.items()}
    fields["MessageBody"] = message["Body"]
    if shown.get("sqs.body") == "base64":
        fields["MessageBody in base64"] = as_text(b64decode(message["Body"]))
    system = message["Attributes"]
    for name in ("MessageGroupId", "MessageDeduplicationId", "AWSTraceHeader"):
        if name in system:
            fields[name] = system[name]
    fields["SentTimestamp"] = str(int(system["SentTimestamp"]) // MS_PER_S)
    return Seen(topic, shown[SAMPLE_HEADER], fields, list(shown.items()))
