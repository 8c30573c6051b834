"""Difference of two documents: what has to be done so that a node is as one of them says. Pure.

Nothing is deleted that the wanted document does not name, and what it does not set stays.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

from gateway.config.settings import TopicConfig
from gateway.deployment.document import (
    BindingEntry,
    Document,
    ExchangeEntry,
    KeyEntry,
    QueueEntry,
    UserEntry,
)
from gateway.queues.model import QueueSettings
from gateway.quotas.declared import entity_of

_NO_SECRET: Final = "export with --secrets, or add it by hand"  # noqa: S105 - no secret
_CANNOT_SHRINK: Final = "a topic keeps its partitions"


class Action(Enum):
    """Kind of a change; ``CONFLICT``: the thing differs, and cannot be changed."""

    CREATE = "create"
    ALTER = "alter"
    DELETE = "delete"
    CONFLICT = "conflict"


class PlannedChange(NamedTuple):
    """A change of one thing. ``entry``: its entry of the wanted document, None for a deletion."""

    action: Action
    kind: str
    name: str
    details: tuple[str, ...] = ()
    entry: Any = None
    owner: str = ""
    """The user of an access key."""


def plan(there: Document, wanted: Document, *, enforces: bool) -> list[PlannedChange]:
    """Return the changes in the order in which they can be made.

    Without ``enforces`` what is there stays as it is, and is no change.
    """
    queues = {(one.name, one.group): one for one in there.queues}
    topics = {one.name: one for one in there.topics}
    owning = [one for one in wanted.queues if one.owns_topic]
    others = [one for one in wanted.queues if not one.owns_topic]
    made = _making(owning, queues)
    changes = [
        *(_queue(one, queues.get((one.name, one.group))) for one in owning),
        *(_topic(one, topics.get(one.name), is_made=one.name in made) for one in wanted.topics),
        *(_queue(one, queues.get((one.name, one.group))) for one in others),
        *_dead_letter_queues(there, wanted),
        *_exchanges(there, wanted),
        *_bindings(there, wanted),
        *_users(there, wanted),
        *_rules(there, wanted),
        *_quotas(there, wanted),
    ]
    found = [one for one in changes if one is not None]
    if not enforces:
        found = [one for one in found if _is_about_missing(one)]
    return found + list(_deletions(there, wanted))


def _is_about_missing(change: PlannedChange) -> bool:
    return change.action is Action.CREATE or _NO_SECRET in change.details


def _making(owning: Sequence[QueueEntry], there: Mapping[Any, Any]) -> set[str]:
    """Return the names of topics that are made with their queues."""
    return {one.name for one in owning if (one.name, one.group) not in there}


def _topic(
    entry: TopicConfig, there: TopicConfig | None, *, is_made: bool
) -> PlannedChange | None:
    if there is None:
        if is_made and not entry.configs:
            return None
        return PlannedChange(
            Action.CREATE, "topic", entry.name, _configs(entry.configs, {}), entry
        )
    details, wanted, count = (
        _configs(entry.configs, there.configs),
        entry.partitions,
        there.partitions,
    )
    if wanted is not None and count is not None and wanted != count:
        details = (f"partitions {count} to {wanted}", *details)
        if wanted < count:
            return PlannedChange(
                Action.CONFLICT, "topic", entry.name, (*details, _CANNOT_SHRINK)
            )
    return PlannedChange(Action.ALTER, "topic", entry.name, details, entry) if details else None


def _configs(wanted: Mapping[str, str], there: Mapping[str, str]) -> tuple[str, ...]:
    """Return the configs that differ; an empty value is the default."""
    return tuple(
        f"{name} {there.get(name, 'default')} to {value or 'default'}"
        for name, value in wanted.items()
        if there.get(name, "") != value
    )


def _queue(entry: QueueEntry, there: QueueEntry | None) -> PlannedChange | None:
    if there is None:
        return PlannedChange(Action.CREATE, "queue", entry.name, (), entry)
    before = QueueSettings.model_validate(there.settings()).model_dump(mode="json")
    merged = {**there.settings(), **entry.settings()}
    after = QueueSettings.model_validate(merged).model_dump(mode="json")
    details = [
        f"{key} {old} to {after[key]}" for key, old in before.items() if old != after[key]
    ]
    if "partitions" in entry.model_fields_set and entry.partitions != there.partitions:
        details.append(f"partitions {there.partitions} to {entry.partitions}")
        if entry.partitions < there.partitions:
            why = (*details, _CANNOT_SHRINK)
            return PlannedChange(Action.CONFLICT, "queue", entry.name, why)
    details += [
        f"{key} differ"
        for key in ("attributes", "tags")
        if key in entry.model_fields_set and getattr(entry, key) != getattr(there, key)
    ]
    return (
        PlannedChange(Action.ALTER, "queue", entry.name, tuple(details), entry)
        if details
        else None
    )


def _dead_letter_queues(there: Document, wanted: Document) -> Iterator[PlannedChange]:
    """Yield a queue for each dead-letter topic that is neither there nor wanted."""
    known = {one.name for one in (*there.queues, *wanted.queues)}
    known |= {one.name for one in (*there.topics, *wanted.topics)}
    for one in wanted.queues:
        name = one.dead_letter_topic
        if name and name not in known:
            known.add(name)
            order = {"order": "key"} if name.endswith(".fifo") else {}
            entry = QueueEntry.model_validate({"name": name, "owns_topic": True, **order})
            yield PlannedChange(
                Action.CREATE, "queue", name, (f"dead letters of {one.name}",), entry
            )


def _exchanges(there: Document, wanted: Document) -> Iterator[PlannedChange]:
    known = {one.name: one for one in there.exchanges}
    for entry in wanted.exchanges:
        found = known.get(entry.name)
        if found is None:
            yield PlannedChange(Action.CREATE, "exchange", entry.name, (), entry)
        elif not (details := _exchange_details(entry, found)):
            continue
        elif entry.type == found.type:
            yield PlannedChange(Action.ALTER, "exchange", entry.name, tuple(details), entry)
        else:
            why = "an exchange keeps its type: delete it first"
            yield PlannedChange(Action.CONFLICT, "exchange", entry.name, (*details, why))


def _exchange_details(entry: ExchangeEntry, there: ExchangeEntry) -> list[str]:
    """Return what differs. Flags that an entry does not set stay as they are."""
    flags = {"auto_delete", "is_internal"} & entry.model_fields_set
    return [
        f"{key} {getattr(there, key) or 'none'} to {getattr(entry, key) or 'none'}"
        for key in ("type", "alternate", *sorted(flags))
        if getattr(there, key) != getattr(entry, key)
    ]


def _bindings(there: Document, wanted: Document) -> Iterator[PlannedChange]:
    known = {binding_key(one) for one in there.bindings}
    for entry in wanted.bindings:
        if binding_key(entry) not in known:
            to = entry.topic or entry.exchange
            name = f"{entry.source} to {to} by {entry.routing_key!r}"
            yield PlannedChange(Action.CREATE, "binding", name, (), entry)


def binding_key(one: BindingEntry) -> tuple[str, ...]:
    """Return what tells a binding from others."""
    arguments = repr(sorted((key, repr(value)) for key, value in one.arguments.items()))
    return one.source, one.topic, one.exchange, one.routing_key, arguments


def _users(there: Document, wanted: Document) -> Iterator[PlannedChange]:
    known = {one.name: one for one in there.users}
    # Administrators first: the first user of a node is one, whatever is said of it.
    for entry in sorted(wanted.users, key=lambda one: not one.administrator):
        found = known.get(entry.name)
        yield from _user(entry, found)
        keys = {} if found is None else {key.key_id: key for key in found.keys}
        for key in entry.keys:
            yield from _key(key, keys.get(key.key_id), entry.name)


def _user(entry: UserEntry, there: UserEntry | None) -> Iterator[PlannedChange]:
    if there is None:
        if entry.scram:
            yield PlannedChange(Action.CREATE, "user", entry.name, (), entry)
        elif not entry.keys:
            yield PlannedChange(Action.CONFLICT, "user", entry.name, (_NO_SECRET,))
        return
    details = []
    if "administrator" in entry.model_fields_set and entry.administrator != there.administrator:
        details.append(f"administrator {there.administrator} to {entry.administrator}".lower())
    if entry.scram and sorted(entry.scram) != sorted(there.scram):
        details.append("another password")
    if details:
        yield PlannedChange(Action.ALTER, "user", entry.name, tuple(details), entry)


def _key(entry: KeyEntry, there: KeyEntry | None, user: str) -> Iterator[PlannedChange]:
    if there is not None:
        return
    if entry.secret:
        yield PlannedChange(Action.CREATE, "key", entry.key_id, (f"of {user}",), entry, user)
    else:
        yield PlannedChange(Action.CONFLICT, "key", entry.key_id, (f"of {user}", _NO_SECRET))


def _rules(there: Document, wanted: Document) -> Iterator[PlannedChange]:
    known = {rule.model_dump_json() for rule in there.auth.rules}
    for entry in wanted.auth.rules:
        if entry.model_dump_json() not in known:
            who = "everybody" if entry.principal == "*" else entry.principal
            name = f"{entry.effect} {entry.operation} {entry.resource} {entry.name} to {who}"
            yield PlannedChange(Action.CREATE, "rule", " ".join(name.split()), (), entry)


def _quotas(there: Document, wanted: Document) -> Iterator[PlannedChange]:
    """Yield the entities whose limits differ; limits that an entry does not set stay."""
    known = {entity_of(one): one.limits for one in there.quotas}
    for entry in wanted.quotas:
        entity = entity_of(entry)
        before = known.get(entity, {})
        details = tuple(
            f"{name} {before.get(name, 'none')} to {value}"
            for name, value in entry.limits.items()
            if before.get(name) != value
        )
        if details:
            action = Action.ALTER if before else Action.CREATE
            yield PlannedChange(action, "quota", entity.text(), details, entry)


def _deletions(there: Document, wanted: Document) -> Iterator[PlannedChange]:
    """Yield the deletions of what is there; a queue's topic goes with the queue."""
    queues = {one.name: one for one in there.queues}
    for name in wanted.delete.queues:
        if name in queues:
            yield PlannedChange(Action.DELETE, "queue", name)
    gone = {name for name in wanted.delete.queues if name in queues and queues[name].owns_topic}
    for kind, names, known in (
        ("exchange", wanted.delete.exchanges, {one.name for one in there.exchanges}),
        ("topic", wanted.delete.topics, {one.name for one in there.topics} - gone),
        ("user", wanted.delete.users, {one.name for one in there.users}),
    ):
        yield from (PlannedChange(Action.DELETE, kind, name) for name in names if name in known)
