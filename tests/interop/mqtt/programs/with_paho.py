"""paho-mqtt: the reference client in Python, its network loop in a thread."""

import asyncio
from typing import Any, Final

from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties
from paho.mqtt.subscribeoptions import SubscribeOptions

from tests.interop.mqtt.programs.link import (
    ANSWER_S_MAX,
    V5,
    Endpoint,
    Inbox,
    Message,
    Properties,
)

SESSION_EXPIRY_S: Final = 300


def to_paho(found: Properties, kind: int = PacketTypes.PUBLISH) -> PahoProperties:
    """Return the properties as paho wants them."""
    out: Any = PahoProperties(kind)
    if found.payload_format is not None:
        out.PayloadFormatIndicator = found.payload_format
    if found.content_type is not None:
        out.ContentType = found.content_type
    if found.response_topic is not None:
        out.ResponseTopic = found.response_topic
    if found.correlation_data is not None:
        out.CorrelationData = found.correlation_data
    if found.message_expiry_interval is not None:
        out.MessageExpiryInterval = found.message_expiry_interval
    for pair in found.user:
        out.UserProperty = pair
    return out


def from_paho(found: Any) -> Properties:
    """Return the properties of a message that came."""
    return Properties(
        payload_format=getattr(found, "PayloadFormatIndicator", None),
        content_type=getattr(found, "ContentType", None),
        response_topic=getattr(found, "ResponseTopic", None),
        correlation_data=getattr(found, "CorrelationData", None),
        message_expiry_interval=getattr(found, "MessageExpiryInterval", None),
        user=tuple(getattr(found, "UserProperty", ())),
        subscription_identifiers=tuple(getattr(found, "SubscriptionIdentifier", ())),
    )


class PahoLink:
    """A paho client whose callbacks are brought to the event loop."""

    def __init__(self, endpoint: Endpoint, client_id: str) -> None:
        self.endpoint = endpoint
        self.client_id = client_id
        self.inbox = Inbox()
        self.client: Any = None
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[tuple[str, int], asyncio.Future[Any]] = {}

    def _future(self, what: str, mid: int) -> asyncio.Future[Any]:
        return self._waiting.setdefault((what, mid), self._loop.create_future())

    def _tell(self, what: str, mid: int, result: Any) -> None:
        def set_result() -> None:
            future = self._future(what, mid)
            if not future.done():
                future.set_result(result)

        self._loop.call_soon_threadsafe(set_result)

    async def _told(self, what: str, mid: int) -> Any:
        async with asyncio.timeout(ANSWER_S_MAX):
            result = await self._future(what, mid)
        del self._waiting[what, mid]
        return result

    def _make(self, *, clean: bool) -> Any:
        version = self.endpoint.version
        client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=self.client_id,
            clean_session=None if version == V5 else clean,
            protocol=version,  # type: ignore[arg-type]  # its constants are these numbers
            transport="websockets" if self.endpoint.is_websocket else "tcp",
            reconnect_on_failure=False,
        )
        if self.endpoint.is_websocket:
            client.ws_set_options(path=self.endpoint.path)
        client.on_connect = lambda _c, _u, flags, reason, _p: self._tell(
            "connect", 0, (flags.session_present, reason)
        )
        client.on_subscribe = lambda _c, _u, mid, codes, _p: self._tell("subscribe", mid, codes)
        client.on_unsubscribe = lambda _c, _u, mid, codes, _p: self._tell(
            "unsubscribe", mid, codes
        )
        client.on_publish = lambda _c, _u, mid, reason, _p: self._tell("publish", mid, reason)
        client.on_message = self._on_message
        return client

    def _on_message(self, _client: Any, _user: Any, found: Any) -> None:
        message = Message(
            topic=found.topic,
            payload=found.payload,
            qos=found.qos,
            retain=bool(found.retain),
            properties=from_paho(found.properties),
        )
        self._loop.call_soon_threadsafe(self.inbox.queue.put_nowait, message)

    async def open(self, *, clean: bool, will: Message | None = None) -> bool | None:
        """Connect, with a session of five minutes unless clean."""
        self.client = self._make(clean=clean)
        if will is not None:
            properties = None
            if self.endpoint.version == V5:
                properties = to_paho(will.properties, PacketTypes.WILLMESSAGE)
            self.client.will_set(will.topic, will.payload, will.qos, will.retain, properties)
        more: dict[str, Any] = {}
        if self.endpoint.version == V5:
            properties = PahoProperties(PacketTypes.CONNECT)
            properties.SessionExpiryInterval = 0 if clean else SESSION_EXPIRY_S
            more = {"clean_start": clean, "properties": properties}
        self.client.connect("127.0.0.1", self.endpoint.port, **more)
        self.client.loop_start()
        present, reason = await self._told("connect", 0)
        assert not reason.is_failure, reason
        return bool(present)

    async def subscribe(
        self, topic_filter: str, qos: int, *, identifier: int = 0, **options: Any
    ) -> Any:
        """Subscribe and return the reason codes."""
        if self.endpoint.version == V5:
            properties: Any = None
            if identifier:
                properties = PahoProperties(PacketTypes.SUBSCRIBE)
                properties.SubscriptionIdentifier = identifier
            _, mid = self.client.subscribe(
                topic_filter,
                options=SubscribeOptions(qos=qos, **options),
                properties=properties,
            )
        else:
            _, mid = self.client.subscribe(topic_filter, qos)
        codes = await self._told("subscribe", mid)
        assert not any(code.is_failure for code in codes), codes
        return codes

    async def unsubscribe(self, topic_filter: str) -> Any:
        """Unsubscribe and return the reason codes, in 3.x none."""
        _, mid = self.client.unsubscribe(topic_filter)
        return await self._told("unsubscribe", mid)

    async def publish(self, message: Message, **more: Any) -> None:
        """Publish; return once it has left (QoS 0) or is acknowledged."""
        if self.endpoint.version == V5:
            more.setdefault("properties", to_paho(message.properties))
        sent = self.client.publish(
            message.topic, message.payload, message.qos, message.retain, **more
        )
        assert sent.rc == MQTTErrorCode.MQTT_ERR_SUCCESS
        reason = await self._told("publish", sent.mid)
        assert not reason.is_failure, reason

    async def close(self) -> None:
        """Disconnect and end the thread."""
        self.client.disconnect()
        await asyncio.to_thread(self.client.loop_stop)

    async def drop(self) -> None:
        """End the thread, then the socket."""
        await asyncio.to_thread(self.client.loop_stop)
        self.client._sock_close()
