"""A protocol's connection replaces what its base offers for it, and nothing else of it."""

import pytest

from adapters.kafka.connection import KafkaConnection
from adapters.mqtt.connection.connection import MqttConnection
from adapters.mqtt.connection.websocket import WebSocketConnection
from adapters.rocketmq.connection import RemotingConnection
from adapters.sqs.connection import SqsConnection
from gateway.connection import Connection


@pytest.mark.parametrize(
    "kind",
    [KafkaConnection, MqttConnection, RemotingConnection, WebSocketConnection, SqsConnection],
)
def test_no_private_name_of_the_base_is_used_for_something_else(
    kind: type[Connection],
) -> None:
    private = {name for name in vars(Connection) if name.startswith("_") and "__" not in name}
    for one in kind.__mro__[: kind.__mro__.index(Connection)]:
        assert private.isdisjoint(vars(one)), one


def test_a_class_with_a_private_name_of_the_base_is_refused() -> None:
    with pytest.raises(TypeError, match=r"has names of Connection: \['_end'\]"):
        type("Clash", (Connection,), {"_end": None, "_own": None})
