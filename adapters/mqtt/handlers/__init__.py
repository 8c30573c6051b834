"""Handlers: one file and one line for each packet; ``session.ALLOWED_PACKETS`` has their order.

A handler is ``handle(connection, packet)``; it answers by ``connection.send``, now or later. An
``MqttError`` ends the connection with its reason code.
"""

from collections.abc import Mapping
from typing import Any, Final

from adapters.mqtt.connection.ports import Handler
from adapters.mqtt.handlers import (
    acks,
    auth,
    connect,
    disconnect,
    pingreq,
    publish,
    subscribe,
    unsubscribe,
)
from adapters.mqtt.session import ALLOWED_PACKETS, State
from adapters.mqtt.wire import (
    AckRun,
    Auth,
    Connect,
    Disconnect,
    MixedTopicPublishes,
    Pingreq,
    PublishRun,
    Subscribe,
    Unsubscribe,
)

HANDLERS: Final[Mapping[type[Any], Handler]] = {
    PublishRun: publish.handle,
    MixedTopicPublishes: publish.handle_mixed_topics,
    AckRun: acks.handle,
    Subscribe: subscribe.handle,
    Unsubscribe: unsubscribe.handle,
    Pingreq: pingreq.handle,
    Connect: connect.handle,
    Auth: auth.handle,
    Disconnect: disconnect.handle,
}

TABLES: Final[Mapping[State, Mapping[type[Any], Handler]]] = {
    state: {kind: HANDLERS[kind] for kind in kinds} for state, kinds in ALLOWED_PACKETS.items()
}
"""Handlers of the packets that are allowed in a state; any other packet is a protocol error."""
