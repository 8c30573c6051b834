"""Topics made before a test needs them, through the admin protocol."""

import uuid
from collections.abc import Mapping

from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.waiting import wait_until

_ANSWER_S_MAX = 30


def fresh_name(prefix: str = "t") -> str:
    """Return a name that no topic or group of any run has had."""
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


def create_topic(
    bootstrap: str,
    *,
    partitions: int = 1,
    configs: Mapping[str, str] | None = None,
    name: str | None = None,
) -> str:
    """Create a topic, with a fresh name unless one is given; return its name once it shows."""
    topic = name or fresh_name()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(topic, partitions, 1, config=dict(configs or {}))
    admin.create_topics([new])[topic].result(_ANSWER_S_MAX)

    def is_there() -> bool:
        found = admin.list_topics(timeout=_ANSWER_S_MAX).topics.get(topic)
        return found is not None and len(found.partitions) == partitions

    wait_until(is_there, within_s=_ANSWER_S_MAX, what=f"topic {topic} shows")
    return topic
