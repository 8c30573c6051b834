"""amqtt's client: asyncio, 3.1.1 only."""

import asyncio
import contextlib
from typing import Any, Final

from amqtt.client import MQTTClient

from tests.interop.mqtt.programs.link import ANSWER_S_MAX, Endpoint, Inbox, Message

CONFIG: Final = {"auto_reconnect": False, "keep_alive": 60, "ping_delay": 1}


class AmqttLink:
    """An amqtt client."""

    def __init__(self, endpoint: Endpoint, client_id: str) -> None:
        self.endpoint = endpoint
        self.client_id = client_id
        self.inbox = Inbox()
        self.client: Any = None
        self._reading: asyncio.Task[None] | None = None

    async def open(self, *, clean: bool, will: Message | None = None) -> bool | None:
        """Connect; it does not tell whether a session was there."""
        config: dict[str, Any] = dict(CONFIG)
        if will is not None:
            config["will"] = {
                "topic": will.topic,
                "message": will.payload.decode(),
                "qos": will.qos,
                "retain": will.retain,
            }
        self.client = MQTTClient(self.client_id, config)
        scheme, path = (
            ("ws", self.endpoint.path) if self.endpoint.is_websocket else ("mqtt", "")
        )
        await self.client.connect(
            f"{scheme}://127.0.0.1:{self.endpoint.port}{path}", cleansession=clean
        )
        self._reading = asyncio.create_task(self._read())
        return None

    async def _read(self) -> None:
        while True:
            found = await self.client.deliver_message()
            self.inbox.queue.put_nowait(
                Message(found.topic, bytes(found.data), found.qos, bool(found.retain))
            )

    async def subscribe(self, topic_filter: str, qos: int, *, identifier: int = 0) -> None:
        """Subscribe and wait for SUBACK."""
        assert not identifier
        codes = await self.client.subscribe([(topic_filter, qos)])
        assert codes == [qos]

    async def unsubscribe(self, topic_filter: str) -> None:
        """Unsubscribe and wait for UNSUBACK."""
        await self.client.unsubscribe([topic_filter])

    async def publish(self, message: Message) -> None:
        """Publish and wait for the acknowledgement."""
        async with asyncio.timeout(ANSWER_S_MAX):
            await self.client.publish(
                message.topic, message.payload, qos=message.qos, retain=message.retain
            )

    async def close(self) -> None:
        """Disconnect."""
        await self._stop_reading()
        await self.client.disconnect()

    async def drop(self) -> None:
        """Close the stream below it."""
        await self._stop_reading()
        handler = self.client._handler
        await handler.writer.close()
        with contextlib.suppress(Exception):  # it is told of its end in several ways
            await self.client.cancel_tasks()

    async def _stop_reading(self) -> None:
        assert self._reading is not None
        self._reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reading
