"""MQTT 5.0, by paho."""

from collections.abc import Mapping

from tests.interop.fidelity.samples import SAMPLE_HEADER, Sample, Seen, Sending, as_text
from tests.interop.mqtt.programs import link
from tests.interop.mqtt.programs.with_paho import PahoLink

_FIELDS = (
    ("Content Type", "content_type"),
    ("Response Topic", "response_topic"),
    ("Message Expiry Interval", "message_expiry_interval"),
)


class MqttEnd:
    """A publisher, and a subscriber that is there before anything is sent."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def open(self) -> None:
        endpoint = link.Endpoint(self._port, link.V5)
        self._publisher = PahoLink(endpoint, "fidelity-publisher")
        self._subscriber = PahoLink(endpoint, "fidelity-subscriber")
        await self._publisher.open(clean=True)
        await self._subscriber.open(clean=True)
        await self._subscriber.subscribe("fidelity/#", 1)

    async def send(self, sending: Sending) -> None:
        for sample in sending.samples:
            delayed = f"$delayed/{sample.delay_s}/" if sample.delay_s else ""
            message = link.Message(
                f"{delayed}{sending.key}", sample.value or b"", 1, properties=_to_mqtt(sample)
            )
            await self._publisher.publish(message)

    async def receive(self, counts: Mapping[str, int]) -> list[Seen]:
        found: list[Seen] = []
        while len(found) < sum(counts.values()):
            message = await self._subscriber.inbox.next()
            topic = message.topic.split("/")[1]
            if topic in counts:
                found.append(_seen(topic, message))
        return found

    async def close(self) -> None:
        await self._publisher.close()
        await self._subscriber.close()


def _to_mqtt(sample: Sample) -> link.Properties:
    return link.Properties(
        content_type=sample.content_type,
        response_topic=sample.reply_to,
        correlation_data=None if sample.correlation is None else sample.correlation.encode(),
        message_expiry_interval=sample.expiry_s,
        user=(
            *((name, value.decode()) for name, value in sample.all_headers),
            *(() if sample.priority is None else (("priority", str(sample.priority)),)),
        ),
    )


def _seen(topic: str, message: link.Message) -> Seen:
    properties = message.properties
    fields = {f"user property `{name}`": value for name, value in properties.user}
    fields["payload"] = as_text(message.payload)
    fields["topic name"] = message.topic
    for name, attribute in _FIELDS:
        if (value := getattr(properties, attribute)) is not None:
            fields[name] = str(value)
    if properties.correlation_data is not None:
        fields["Correlation Data"] = as_text(properties.correlation_data)
    return Seen(topic, dict(properties.user)[SAMPLE_HEADER], fields, list(properties.user))
