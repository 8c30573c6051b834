"""One file per packet, one line per packet here. What may come when is ``session.TRANSITIONS``.

A handler is ``handle(connection, packet)``; it answers by ``connection.send``, now or later. An
``MqttError`` ends the connection with its reason code.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

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
from adapters.mqtt.session import TRANSITIONS, State
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

Handler = Callable[[Any, Any], None]

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
    state: {kind: HANDLERS[kind] for kind in kinds} for state, kinds in TRANSITIONS.items()
}
"""Who serves a packet in a state; what is not in the table may not come then."""
