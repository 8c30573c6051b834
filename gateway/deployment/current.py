"""The document of a running node: what it has, without its messages."""

import json
from collections.abc import Iterator

from features.quota.model import part_text
from features.routing.model import ALTERNATE_EXCHANGE, Binding, Exchange
from gateway.auth.rule_view import RuleText, rule_view
from gateway.auth.rules import RuleBook
from gateway.auth.users import StoredUsers
from gateway.auth.verifiers import format_verifier
from gateway.config.quotas import DeclaredQuota
from gateway.config.settings import TopicConfig
from gateway.deployment.document import (
    AuthEntry,
    BindingEntry,
    Document,
    ExchangeEntry,
    KeyEntry,
    QueueEntry,
    UserEntry,
)
from gateway.exchanges.model import ExchangeName
from gateway.exchanges.standard import RESERVED
from gateway.kernel import Kernel
from gateway.queues.create_queue import QUEUE_TOPIC_CONFIGS
from gateway.queues.purge_offsets import PURGED
from gateway.queues.queue import Queue
from gateway.topics.manager import Topic


def current(kernel: Kernel, namespace: str, *, secrets: bool, whole: bool = True) -> Document:
    """Return the document of a namespace, and of users and rules.

    ``secrets``: with verifiers of passwords and secrets of keys. Not ``whole``: topics that their
    queues made are left out, unless their configs were changed; a queue's entry makes them again.
    """
    queues = kernel.queues.queues(namespace)
    owned = {one.topic.uuid for one in queues if one.owns_topic}
    topics = kernel.topics.topics(namespace)
    kept = [one for one in topics if whole or one.uuid not in owned or _is_changed(one)]
    return Document(
        topics=tuple(_topic(one) for one in kept),
        queues=tuple(_queue(one) for one in queues),
        exchanges=tuple(_exchanges(kernel, namespace)),
        bindings=tuple(map(_binding, kernel.exchanges.bindings(namespace))),
        users=tuple(_users(kernel, secrets=secrets)),
        auth=AuthEntry(rules=tuple(_rules(kernel))),
        quotas=tuple(_quotas(kernel)),
    )


def _is_changed(topic: Topic) -> bool:
    return topic.configs != dict(QUEUE_TOPIC_CONFIGS)


def _topic(topic: Topic) -> TopicConfig:
    return TopicConfig(
        name=topic.name.name, partitions=len(topic.partition_ids), configs=dict(topic.configs)
    )


def _queue(queue: Queue) -> QueueEntry:
    extra = {
        "attributes": {key: text for key, text in queue.attributes.items() if key != PURGED},
        "tags": dict(queue.tags),
    }
    values = {
        "name": queue.name.name,
        "group": queue.group,
        "partitions": len(queue.topic.partition_ids),
        "owns_topic": queue.owns_topic,
        **queue.settings.model_dump(mode="json", exclude_defaults=True),
        **{key: value for key, value in extra.items() if value},
    }
    return QueueEntry.model_validate(values)


def _exchanges(kernel: Kernel, namespace: str) -> Iterator[ExchangeEntry]:
    for one in kernel.exchanges.exchanges(namespace):
        row = kernel.exchanges.row(ExchangeName(namespace, one.name))
        if row is None or not row.is_durable or one.name.startswith(RESERVED):
            continue
        yield _exchange(
            one, row.arguments, auto_delete=row.auto_delete, internal=row.is_internal
        )


def _exchange(
    one: Exchange, arguments: str, *, auto_delete: bool, internal: bool
) -> ExchangeEntry:
    found = json.loads(arguments)
    alternate = found.pop(ALTERNATE_EXCHANGE, "")
    return ExchangeEntry(
        name=one.name,
        type=one.type.value,
        alternate=alternate,
        arguments=found,
        auto_delete=auto_delete,
        is_internal=internal,
    )


def _binding(one: Binding) -> BindingEntry:
    to = one.destination
    return BindingEntry(
        source=one.source,
        topic="" if to.is_exchange else to.name,
        exchange=to.name if to.is_exchange else "",
        routing_key=one.routing_key,
        arguments=json.loads(one.arguments_text),
    )


def _users(kernel: Kernel, *, secrets: bool) -> Iterator[UserEntry]:
    """Yield the users of the store, and those that have only keys there."""
    users = kernel.authenticator
    if not isinstance(users, StoredUsers):
        return
    keys: dict[str, list[KeyEntry]] = {}
    stored_keys = kernel.access_keys.keys()
    for key in stored_keys:
        if not kernel.access_keys.is_declared(key.key_id):
            secret = key.secret if secrets else ""
            entry = KeyEntry(key_id=key.key_id, account=key.account, secret=secret)
            keys.setdefault(key.user, []).append(entry)
    stored = {name for name in users.names() if not users.is_declared(name)}
    for name in sorted(stored | keys.keys()):
        scram = map(format_verifier, users.stored(name)) if name in stored else ()
        yield UserEntry(
            name=name,
            administrator=name in stored and users.is_super_user(name),
            scram=tuple(scram) if secrets else (),
            keys=tuple(keys.get(name, ())),
        )


def _rules(kernel: Kernel) -> Iterator[RuleText]:
    book = kernel.authorizer
    if isinstance(book, RuleBook):
        for rule in book.stored_rules():
            words = rule_view(rule, "store")
            del words["source"]
            yield RuleText.model_validate(words)


def _quotas(kernel: Kernel) -> Iterator[DeclaredQuota]:
    """Yield the quotas, those of the config file too: then its tables make no change."""
    for entity, limits in kernel.quotas.entities():
        parts = {"user": entity.user, "client_id": entity.client_id, "ip": entity.ip}
        named = {name: part_text(part) for name, part in parts.items() if part is not None}
        values = {key.value: value for key, value in limits.items()}
        yield DeclaredQuota.model_validate({**named, **values})
