"""Names of AMQP as names of the gateway: vhosts are namespaces, queues are topics.

A queue's name may be any 255 bytes of UTF-8, a topic's 249 of ``a-zA-Z0-9._-``. A name that is
legal for a topic is the topic's; another one becomes ``amqp-<what is legal of it>-<hash>``, and the
queue keeps its name in its attributes.
"""

import hashlib
import re
from typing import Final

from gateway.model import DEFAULT_NAMESPACE, NAME_CHARS_MAX, TopicName

DEFAULT_VHOST: Final = "/"
QUEUE_NAME: Final = "amqp.name"  # attribute of a queue whose topic is named otherwise

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_ILLEGAL_CHARS: Final = re.compile(r"[^a-zA-Z0-9._-]+")
_HASH_CHARS: Final = 16
_KEPT_CHARS: Final = 100


def to_namespace(vhost: str) -> str:
    """Return the namespace of a vhost.

    >>> to_namespace("/"), to_namespace("shop")
    ('default', 'shop')
    """
    return DEFAULT_NAMESPACE if vhost == DEFAULT_VHOST else vhost


def to_vhost(namespace: str) -> str:
    """Return the vhost of a namespace."""
    return DEFAULT_VHOST if namespace == DEFAULT_NAMESPACE else namespace


def to_topic_name(namespace: str, queue_name: str) -> TopicName:
    """Return the name of the topic of a queue; the same for the same name, always.

    >>> to_topic_name("default", "orders").name
    'orders'
    >>> to_topic_name("default", "a/b").name
    'amqp-a-b-c14cddc033f64b9d'
    """
    if _LEGAL.fullmatch(queue_name) and queue_name not in {".", ".."}:
        return TopicName(namespace, queue_name)
    digest = hashlib.sha256(queue_name.encode()).hexdigest()[:_HASH_CHARS]
    legal = _ILLEGAL_CHARS.sub("-", queue_name)[:_KEPT_CHARS].strip("-.")
    name = f"amqp-{legal}-{digest}"
    assert len(name) <= NAME_CHARS_MAX
    return TopicName(namespace, name)
