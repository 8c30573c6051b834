"""Shards of MQTT's state: which shard of an internal stream holds a key."""

from adapters.mqtt.reading.feed_set import FeedSet
from adapters.mqtt.retained.store import qos_of
from adapters.mqtt.routes import Routes
from adapters.mqtt.sessions.store import GROUP_KEY, parse_key
from gateway.errors import TopicNotFound
from gateway.model import DEFAULT_NAMESPACE
from gateway.placement import Placement
from gateway.sharded_stream import ShardRule
from gateway.slots import shard_of_client, shard_of_share


def session_rule(placement: Placement) -> ShardRule:
    """Return the rule of ``__mqtt_sessions``: the client's shard, or the shared subscription's."""
    count = placement.shard_count

    def shard_of_session(key: bytes, _value: bytes) -> int:
        name, rest = parse_key(key)
        if key.startswith(GROUP_KEY):
            return shard_of_share(name, rest.decode(), count)
        return shard_of_client(DEFAULT_NAMESPACE, name, count)

    return shard_of_session


def retained_rule(routes: Routes, feeds: FeedSet) -> ShardRule:
    """Return the rule of ``__mqtt_retained``: the shard of the partition of the message."""

    def shard_of_retained(topic: bytes, value: bytes) -> int:
        try:
            return feeds.shard_of(routes.find(topic, qos_of(value)))
        except TopicNotFound:  # deleted; it is made again at once
            return 0

    return shard_of_retained


def no_rule(_key: bytes, _value: bytes) -> None:
    """Return None: a QoS 2 identifier stays in the shard of its message's partition.

    The key does not say that partition: who puts it says the shard.
    """
    return
