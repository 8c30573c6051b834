"""gmqtt: an asyncio client for 3.1.1 and 5.0."""

import asyncio
from typing import Any, Final

import gmqtt
from gmqtt.mqtt.constants import MQTTv50, MQTTv311

from tests.interop.mqtt.programs.link import (
    ANSWER_S_MAX,
    V5,
    Endpoint,
    Inbox,
    Message,
    Properties,
)

SESSION_EXPIRY_S: Final = 300


def to_gmqtt(found: Properties) -> dict[str, Any]:
    """Return the properties as gmqtt wants them."""
    known = {
        "content_type": found.content_type,
        "response_topic": found.response_topic,
        "correlation_data": found.correlation_data,
        "message_expiry_interval": found.message_expiry_interval,
        "user_property": list(found.user) or None,
    }
    return {name: value for name, value in known.items() if value is not None}


def from_gmqtt(found: dict[str, Any]) -> Properties:
    """Return the properties of a message that came; each is a list there."""
    return Properties(
        content_type=next(iter(found.get("content_type", ())), None),
        response_topic=next(iter(found.get("response_topic", ())), None),
        correlation_data=next(iter(found.get("correlation_data", ())), None),
        message_expiry_interval=next(iter(found.get("message_expiry_interval", ())), None),
        user=tuple(tuple(pair) for pair in found.get("user_property", ())),
        subscription_identifiers=tuple(found.get("subscription_identifier", ())),
    )


class GmqttLink:
    """A gmqtt client."""

    def __init__(self, endpoint: Endpoint, client_id: str) -> None:
        self.endpoint = endpoint
        self.client_id = client_id
        self.inbox = Inbox()
        self.client: Any = None
        self._told: dict[int, asyncio.Future[Any]] = {}
        self._present: bool | None = None

    async def open(self, *, clean: bool, will: Message | None = None) -> bool | None:
        """Connect, with a session of five minutes unless clean."""
        is_5 = self.endpoint.version == V5
        more: dict[str, Any] = {}
        if is_5 and not clean:
            more["session_expiry_interval"] = SESSION_EXPIRY_S
        if will is not None:
            properties = to_gmqtt(will.properties) if is_5 else {}
            more["will_message"] = gmqtt.Message(
                will.topic, will.payload, will.qos, will.retain, **properties
            )
        self.client = gmqtt.Client(self.client_id, clean_session=clean, **more)
        self.client.set_config({"reconnect_retries": 0, "reconnect_delay": 0})
        self.client.on_message = self._on_message
        self.client.on_connect = self._on_connect
        self.client.on_subscribe = self._on_answer
        self.client.on_unsubscribe = self._on_answer
        version = MQTTv50 if is_5 else MQTTv311
        async with asyncio.timeout(ANSWER_S_MAX):
            await self.client.connect("127.0.0.1", self.endpoint.port, version=version)
        return self._present

    def _on_connect(self, _client: Any, flags: int, _code: int, _properties: Any) -> None:
        self._present = bool(flags & 1)

    def _on_answer(self, _client: Any, mid: int, *_rest: Any) -> None:
        future = self._future(mid)
        if not future.done():
            future.set_result(None)

    def _future(self, mid: int) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        return self._told.setdefault(mid, loop.create_future())

    def _on_message(
        self, _client: Any, topic: str, payload: bytes, qos: int, properties: dict[str, Any]
    ) -> int:
        found = from_gmqtt(properties)
        retain = bool(properties.get("retain"))
        self.inbox.queue.put_nowait(Message(topic, bytes(payload), qos, retain, found))
        return 0

    async def subscribe(self, topic_filter: str, qos: int, *, identifier: int = 0) -> None:
        """Subscribe and wait for SUBACK."""
        more = {"subscription_identifier": identifier} if identifier else {}
        mid = self.client.subscribe(topic_filter, qos, **more)
        async with asyncio.timeout(ANSWER_S_MAX):
            await self._future(mid)

    async def unsubscribe(self, topic_filter: str) -> None:
        """Unsubscribe and wait for UNSUBACK."""
        mid = self.client.unsubscribe(topic_filter)
        async with asyncio.timeout(ANSWER_S_MAX):
            await self._future(mid)

    async def publish(self, message: Message) -> None:
        """Publish; its own queue says when all is acknowledged."""
        properties = to_gmqtt(message.properties) if self.endpoint.version == V5 else {}
        self.client.publish(
            message.topic, message.payload, message.qos, message.retain, **properties
        )
        async with asyncio.timeout(ANSWER_S_MAX):
            await self.client._wait_qos_queue_drained()

    async def close(self) -> None:
        """Disconnect."""
        await self.client.disconnect()

    async def drop(self) -> None:
        """Abort the transport."""
        self.client.stop_reconnect()
        self.client._connection._transport.abort()
        await self.client._connection.close()
