"""Configs of the name server: where their texts are among the node's documents."""

from typing import Final

KV_KIND: Final = "rocketmq.kv"
"""Kind of the documents; their namespaces and names are those of the configs."""
ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"
"""Namespace of the texts with the queues of ordered topics, by topic."""
