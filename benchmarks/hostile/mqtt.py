"""MQTT packets of as many parts as are taken, or more."""

from typing import Final

from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import Prop

_CONNECT: Final = wire.connect("hostile")
_PACKET_BYTES: Final = 1_000_000
_USER_PROPERTIES: Final = [(Prop.USER, ("", ""))] * (_PACKET_BYTES // 5)


def big_connect() -> bytes:
    """Connect with 200,000 user properties: 1 MB."""
    return wire.connect("hostile", found=_USER_PROPERTIES)


def subscribe() -> bytes:
    """Subscribe to as many filters as a packet may have, then unsubscribe from them."""
    filters = [f"level/{n}/+/#" for n in range(10_000)]
    return _CONNECT + wire.subscribe(1, [(one, 0) for one in filters]) + wire.PINGREQ


def deep_subscribe() -> bytes:
    """Subscribe to 2,000 filters of 128 levels."""
    filters = ["/".join([f"{n}", *["a"] * 127]) for n in range(2_000)]
    return _CONNECT + wire.subscribe(1, [(one, 0) for one in filters]) + wire.PINGREQ


def publish_storm() -> bytes:
    """Publish 200,000 small messages to topics that differ, at QoS 0."""
    storm = b"".join(wire.publish(f"storm/{n % 5_000}", b"x") for n in range(200_000))
    return _CONNECT + storm + wire.PINGREQ


def big_publish() -> bytes:
    """Publish a message with 200,000 user properties."""
    return _CONNECT + wire.publish("t", b"x", found=_USER_PROPERTIES) + wire.PINGREQ


CASES: Final = {
    "CONNECT, 200,000 properties": big_connect,
    "SUBSCRIBE, 10,000 filters": subscribe,
    "SUBSCRIBE, 2,000 filters of 128 levels": deep_subscribe,
    "PUBLISH, 200,000 small messages": publish_storm,
    "PUBLISH, 200,000 properties": big_publish,
}
