"""Changes of a plan, made on the node one after the other; what fails does not stop the others."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple

from features.quota.model import check_limit
from features.routing.model import ALTERNATE_EXCHANGE, Destination, parse_arguments
from gateway.auth.access_keys import AccessKeys
from gateway.auth.rule_words import to_rule
from gateway.auth.rules import RuleBook
from gateway.auth.users import StoredUsers
from gateway.auth.verifiers import parse_verifier
from gateway.config.settings import TopicConfig
from gateway.deployment.document import BindingEntry, ExchangeEntry, QueueEntry
from gateway.deployment.plan import Action, PlannedChange
from gateway.errors import GatewayError, InvalidRequest, TopicExists
from gateway.exchanges.manager import Binding, format_arguments
from gateway.exchanges.model import ExchangeName
from gateway.exchanges.rows import altered
from gateway.exchanges.standard import ExchangeNotFound
from gateway.kernel import Kernel
from gateway.model import TopicName, check_topic_name
from gateway.queues.create_queue import check_order, make_queue
from gateway.queues.model import QueueSettings
from gateway.quotas.declared import entity_of


class Outcome(NamedTuple):
    """Change, and why it was not made; empty: it was made."""

    change: PlannedChange
    error: str


async def carry_out(
    kernel: Kernel, namespace: str, changes: Sequence[PlannedChange]
) -> list[Outcome]:
    """Make all changes but conflicts, in order."""
    found = []
    for change in changes:
        error = ""
        if change.action is not Action.CONFLICT:
            try:
                await _STEPS[change.kind, change.action](kernel, namespace, change)
            except GatewayError as failure:
                error = f"{type(failure).__name__}: {failure}"
        found.append(Outcome(change, error))
    return found


async def _put_topic(kernel: Kernel, namespace: str, change: PlannedChange) -> None:
    entry: TopicConfig = change.entry
    name = TopicName(namespace, check_topic_name(entry.name))
    topic = kernel.topics.find(name)
    if topic is None:
        configs = {key: value for key, value in entry.configs.items() if value}
        try:
            await kernel.topics.create(name, partitions=entry.partitions, configs=configs)
        except TopicExists:
            await _put_topic(kernel, namespace, change)
        return
    if entry.partitions is not None and entry.partitions > len(topic.partition_ids):
        await kernel.topics.add_partitions(name, entry.partitions)
    configs_changed: Mapping[str, str | None] = {
        key: value or None
        for key, value in entry.configs.items()
        if topic.configs.get(key, "") != value
    }
    if configs_changed:
        await kernel.topics.alter_configs(name, configs_changed)


async def _delete_topic(kernel: Kernel, namespace: str, change: PlannedChange) -> None:
    await kernel.topics.delete(TopicName(namespace, check_topic_name(change.name)))


async def _put_queue(kernel: Kernel, namespace: str, change: PlannedChange) -> None:
    entry: QueueEntry = change.entry
    name = TopicName(namespace, check_topic_name(entry.name))
    queue = kernel.queues.find(name, entry.group)
    if queue is None:
        await make_queue(
            kernel.queues,
            kernel.topics,
            name,
            QueueSettings.model_validate(entry.settings()),
            group=entry.group,
            partitions=entry.partitions,
            attributes=entry.attributes,
            tags=entry.tags,
        )
        return
    if entry.partitions > len(queue.topic.partition_ids):
        await kernel.topics.add_partitions(name, entry.partitions)
    kept = queue.settings.model_dump(exclude_defaults=True)
    settings = QueueSettings.model_validate({**kept, **entry.settings()})
    check_order(name, settings)
    await kernel.queues.alter(
        queue,
        settings=None if settings == queue.settings else settings,
        attributes=entry.attributes if "attributes" in entry.model_fields_set else None,
        tags=entry.tags if "tags" in entry.model_fields_set else None,
    )


async def _delete_queue(kernel: Kernel, namespace: str, change: PlannedChange) -> None:
    queue = kernel.queues.find(TopicName(namespace, change.name))
    if queue is not None:
        await kernel.queues.delete(queue)


async def _put_exchange(kernel: Kernel, namespace: str, change: PlannedChange) -> None:
    entry: ExchangeEntry = change.entry
    arguments = parse_arguments(json.dumps(entry.arguments))
    if entry.alternate:
        arguments[ALTERNATE_EXCHANGE] = entry.alternate
    await kernel.exchanges.declare(
        ExchangeName(namespace, entry.name),
        entry.type,
        arguments,
        auto_delete=entry.auto_delete,
        is_internal=entry.is_internal,
    )


async def _alter_exchange(kernel: Kernel, namespace: str, change: PlannedChange) -> None:
    entry: ExchangeEntry = change.entry
    row = kernel.exchanges.row(ExchangeName(namespace, entry.name))
    if row is None:
        raise ExchangeNotFound(f"no exchange {entry.name!r}")
    flags = {
        key: getattr(entry if key in entry.model_fields_set else row, key)
        for key in ("auto_delete", "is_internal")
    }
    await kernel.exchanges.alter(altered(row, entry.alternate, **flags))


async def _delete_exchange(kernel: Kernel, namespace: str, change: PlannedChange) -> None:
    await kernel.exchanges.delete(ExchangeName(namespace, change.name))


async def _put_binding(kernel: Kernel, namespace: str, change: PlannedChange) -> None:
    entry: BindingEntry = change.entry
    destination = Destination(entry.topic or entry.exchange, is_exchange=bool(entry.exchange))
    arguments = format_arguments(parse_arguments(json.dumps(entry.arguments)))
    binding = Binding(entry.source, destination, entry.routing_key, arguments)
    await kernel.exchanges.bind(namespace, binding)


async def _put_user(kernel: Kernel, _: str, change: PlannedChange) -> None:
    users, entry = _users(kernel), change.entry
    credentials = [parse_verifier(text) for text in entry.scram]
    await users.restore_user(
        entry.name,
        credentials or users.credentials(entry.name),
        administers=entry.administrator,
    )


async def _delete_user(kernel: Kernel, _: str, change: PlannedChange) -> None:
    await _users(kernel).remove_user(change.name)


async def _put_key(kernel: Kernel, _: str, change: PlannedChange) -> None:
    keys: AccessKeys = kernel.access_keys
    entry = change.entry
    await keys.add(
        change.owner, account=entry.account, key_id=entry.key_id, secret=entry.secret
    )


async def _put_rule(kernel: Kernel, _: str, change: PlannedChange) -> None:
    book = kernel.authorizer
    if not isinstance(book, RuleBook):
        raise InvalidRequest("this node's rules are kept elsewhere")
    await book.add_rules([to_rule(change.entry, book.types)])


async def _put_quota(kernel: Kernel, _: str, change: PlannedChange) -> None:
    entity = entity_of(change.entry)
    limits = {
        check_limit(entity, name, value): value for name, value in change.entry.limits.items()
    }
    await kernel.quotas.change(entity, limits)


def _users(kernel: Kernel) -> StoredUsers:
    if not isinstance(kernel.authenticator, StoredUsers):
        raise InvalidRequest("this node's users are kept elsewhere")
    return kernel.authenticator


_Step = Callable[[Kernel, str, PlannedChange], Awaitable[None]]
_STEPS: Final[Mapping[tuple[str, Action], _Step]] = {
    ("topic", Action.CREATE): _put_topic,
    ("topic", Action.ALTER): _put_topic,
    ("topic", Action.DELETE): _delete_topic,
    ("queue", Action.CREATE): _put_queue,
    ("queue", Action.ALTER): _put_queue,
    ("queue", Action.DELETE): _delete_queue,
    ("exchange", Action.CREATE): _put_exchange,
    ("exchange", Action.ALTER): _alter_exchange,
    ("exchange", Action.DELETE): _delete_exchange,
    ("binding", Action.CREATE): _put_binding,
    ("user", Action.CREATE): _put_user,
    ("user", Action.ALTER): _put_user,
    ("user", Action.DELETE): _delete_user,
    ("key", Action.CREATE): _put_key,
    ("rule", Action.CREATE): _put_rule,
    ("quota", Action.CREATE): _put_quota,
    ("quota", Action.ALTER): _put_quota,
}
