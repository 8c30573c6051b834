"""aiomqtt: paho-mqtt behind an asyncio interface."""

import asyncio
import contextlib
from typing import Any, Final

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties

from tests.interop.mqtt.programs.link import ANSWER_S_MAX, V5, Endpoint, Inbox, Message
from tests.interop.mqtt.programs.with_paho import from_paho, to_paho

SESSION_EXPIRY_S: Final = 300


class AiomqttLink:
    """An aiomqtt client; it is a context manager, entered and left by hand."""

    def __init__(self, endpoint: Endpoint, client_id: str) -> None:
        self.endpoint = endpoint
        self.client_id = client_id
        self.inbox = Inbox()
        self.client: aiomqtt.Client | None = None
        self._reading: asyncio.Task[None] | None = None

    async def open(self, *, clean: bool, will: Message | None = None) -> bool | None:
        """Connect, with a session of five minutes unless clean; it does not tell what was there."""
        is_5 = self.endpoint.version == V5
        more: dict[str, Any] = {"clean_session": clean}
        if is_5:
            properties: Any = PahoProperties(PacketTypes.CONNECT)
            properties.SessionExpiryInterval = 0 if clean else SESSION_EXPIRY_S
            more = {"clean_start": clean, "properties": properties}
        if will is not None:
            more["will"] = aiomqtt.Will(will.topic, will.payload, will.qos, will.retain)
        self.client = aiomqtt.Client(
            "127.0.0.1",
            self.endpoint.port,
            identifier=self.client_id,
            protocol=aiomqtt.ProtocolVersion(self.endpoint.version),
            transport="websockets" if self.endpoint.is_websocket else "tcp",
            websocket_path=self.endpoint.path if self.endpoint.is_websocket else None,
            timeout=ANSWER_S_MAX,
            **more,
        )
        await self.client.__aenter__()
        self._reading = asyncio.create_task(self._read(self.client))
        return None

    async def _read(self, client: aiomqtt.Client) -> None:
        with contextlib.suppress(aiomqtt.MqttError):
            async for found in client.messages:
                payload = found.payload
                assert isinstance(payload, bytes)
                self.inbox.queue.put_nowait(
                    Message(
                        str(found.topic),
                        payload,
                        found.qos,
                        bool(found.retain),
                        from_paho(found.properties),
                    )
                )

    async def subscribe(self, topic_filter: str, qos: int, *, identifier: int = 0) -> None:
        """Subscribe and wait for SUBACK."""
        properties: Any = None
        if identifier:
            properties = PahoProperties(PacketTypes.SUBSCRIBE)
            properties.SubscriptionIdentifier = identifier
        assert self.client is not None
        await self.client.subscribe(topic_filter, qos=qos, properties=properties)

    async def unsubscribe(self, topic_filter: str) -> None:
        """Unsubscribe and wait for UNSUBACK."""
        assert self.client is not None
        await self.client.unsubscribe(topic_filter)

    async def publish(self, message: Message) -> None:
        """Publish and wait for the acknowledgement."""
        properties = to_paho(message.properties) if self.endpoint.version == V5 else None
        assert self.client is not None
        await self.client.publish(
            message.topic,
            message.payload,
            message.qos,
            retain=message.retain,
            properties=properties,
        )

    async def close(self) -> None:
        """Leave the context manager."""
        assert self.client is not None
        await self._stop_reading()
        await self.client.__aexit__(None, None, None)

    async def drop(self) -> None:
        """Close the socket below paho."""
        assert self.client is not None
        await self._stop_reading()
        self.client._client._sock_close()
        with contextlib.suppress(aiomqtt.MqttError):
            await self.client.__aexit__(None, None, None)

    async def _stop_reading(self) -> None:
        assert self._reading is not None
        self._reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reading
