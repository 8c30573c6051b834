"""PUBLISH (section 3.3): the alias, the windows, the rules; then into the log."""

from adapters.mqtt.connection.connection import MqttConnection
from adapters.mqtt.wire import MixedTopicPublishes, PublishRun


def handle(connection: MqttConnection, run: PublishRun) -> None:
    """Publish a run. Errors: 0x93, 0x94; a refusal is answered, and the connection goes on."""
    connection.node.counters.messages_received += len(run.payloads) - 1
    connection.inbound.take(run)


def handle_mixed_topics(connection: MqttConnection, mixed: MixedTopicPublishes) -> None:
    """Publish packets whose topics take turns. Errors: as ``handle``."""
    connection.node.counters.messages_received += len(mixed.payloads) - 1
    connection.inbound.take_mixed_topics(mixed)
