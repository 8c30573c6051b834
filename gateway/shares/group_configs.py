"""Configs of share groups: names, defaults and ranges, as in Apache Kafka, and stored values.

    key     0x08, group (see ``gateway.groups.cursor_keys``), in the stream ``__cursors``
    value   JSON object of the values that were set, as texts

A config lies in the shard of its group. Values that were not set are the defaults.
"""

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from gateway.errors import InvalidConfig, PolicyViolation
from gateway.groups.cursor_keys import group_key, parse_group_key
from gateway.groups.cursors import CursorManager
from gateway.groups.model import GroupName
from gateway.queues.model import QueueSettings
from gateway.sharded_stream import ShardedStream
from gateway.storage import OnDone
from gateway.topics.config_specs import ConfigType

CONFIG_KEY: Final = b"\x08"

OFFSET_RESET: Final = "share.auto.offset.reset"
ISOLATION: Final = "share.isolation.level"
LOCK_MS: Final = "share.record.lock.duration.ms"
DELIVERIES: Final = "share.delivery.count.limit"
LOCKS: Final = "share.partition.max.record.locks"
RENEW: Final = "share.renew.acknowledge.enable"
DEAD_LETTERS: Final = "errors.deadletterqueue.topic.name"

LATEST: Final = "latest"
EARLIEST: Final = "earliest"
BY_DURATION: Final = "by_duration:"

_DURATION: Final = re.compile(
    r"P(?:(\d{1,6})D)?(?:T(?:(\d{1,6})H)?(?:(\d{1,6})M)?(?:(\d{1,6})(?:\.\d{1,9})?S)?)?"
)
_UNITS_MS: Final = (86_400_000, 3_600_000, 60_000, 1_000)
_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{0,249}")


class GroupConfigSpec(NamedTuple):
    """Config of a group. ``check`` returns the fault of a value, or None."""

    type: ConfigType
    default: str
    documentation: str
    check: Callable[[str], str | None]


def duration_ms(reset: str) -> int:
    """Return the time of a reset of the form ``by_duration:P1DT2H3M4S``; 0 for other forms.

    >>> duration_ms("by_duration:PT1M"), duration_ms("earliest")
    (60000, 0)
    """
    match = _DURATION.fullmatch(reset.removeprefix(BY_DURATION))
    if match is None:
        return 0
    parts = zip(match.groups(), _UNITS_MS, strict=True)
    return sum(int(digits) * unit_ms for digits, unit_ms in parts if digits)


def _reset(value: str) -> str | None:
    if value in {LATEST, EARLIEST} or (
        value.startswith(BY_DURATION) and duration_ms(value) > 0
    ):
        return None
    return "is not latest, earliest or by_duration:<PnDTnHnMn.nS>"


def _one_of(*words: str) -> Callable[[str], str | None]:
    return lambda value: None if value in words else f"is not {' or '.join(words)}"


def _between(low: int, high: int) -> Callable[[str], str | None]:
    def check(value: str) -> str | None:
        is_number = value.isascii() and value.isdigit() and len(value) <= len(str(high))
        return None if is_number and low <= int(value) <= high else f"is not {low} to {high}"

    return check


def _topic(value: str) -> str | None:
    return None if _TOPIC_NAME.fullmatch(value) else "is not the name of a topic"


SPECS: Final[Mapping[str, GroupConfigSpec]] = {
    OFFSET_RESET: GroupConfigSpec(
        ConfigType.STRING, LATEST, "Where the group begins in a partition.", _reset
    ),
    ISOLATION: GroupConfigSpec(
        ConfigType.STRING,
        "read_uncommitted",
        "Both levels deliver committed records only.",
        _one_of("read_uncommitted", "read_committed"),
    ),
    LOCK_MS: GroupConfigSpec(
        ConfigType.INT,
        "30000",
        "Milliseconds for which delivered records are locked.",
        _between(1_000, 3_600_000),
    ),
    DELIVERIES: GroupConfigSpec(
        ConfigType.INT,
        "5",
        "Deliveries after which a record is a dead letter, or dropped.",
        _between(2, 100),
    ),
    LOCKS: GroupConfigSpec(
        ConfigType.INT, "2000", "Locked records of a partition.", _between(100, 100_000)
    ),
    RENEW: GroupConfigSpec(
        ConfigType.BOOLEAN,
        "true",
        "Whether a member may renew its locks.",
        _one_of("true", "false"),
    ),
    DEAD_LETTERS: GroupConfigSpec(
        ConfigType.STRING, "", "Topic for dead letters; without one they are dropped.", _topic
    ),
}


class ShareSettings(NamedTuple):
    """Effective configs of a share group."""

    queue: QueueSettings
    offset_reset: str
    may_renew: bool


@lru_cache(maxsize=1_024)
def settings_of_stored(stored: bytes | None) -> ShareSettings:
    """Return the settings of a group by its stored values; None for those of the defaults."""
    return settings_of({} if stored is None else json.loads(stored))


def settings_of(configs: Mapping[str, str]) -> ShareSettings:
    """Return the settings of a group with these values set."""

    def value(name: str) -> str:
        return configs.get(name, SPECS[name].default)

    return ShareSettings(
        QueueSettings(
            lease_ms=int(value(LOCK_MS)),
            delivery_limit=int(value(DELIVERIES)) - 1,  # of failed ones that are allowed
            in_flight_max=int(value(LOCKS)),
            dead_letter_topic=value(DEAD_LETTERS),
        ),
        value(OFFSET_RESET),
        value(RENEW) == "true",
    )


def check_changes(changes: Mapping[str, str | None]) -> None:
    """Raise ``InvalidConfig`` for an unknown config, or a value that it cannot have."""
    for name, value in changes.items():
        spec = SPECS.get(name)
        if spec is None:
            msg = f"Unknown group config name: {name[:80]}"
            raise InvalidConfig(msg)
        fault = None if value is None else spec.check(value)
        if fault is not None:
            msg = f"Invalid value {str(value)[:80]} for configuration {name}: {fault}"
            raise InvalidConfig(msg)


class GroupConfigs:
    """Values that were set, by group, in the stream ``__cursors``."""

    def __init__(self, cursors: CursorManager, *, groups_max: int) -> None:
        """``groups_max``: groups with values; more are refused."""
        self._cursors = cursors
        self._groups_max = groups_max
        self._count: int | None = None  # of groups with values; counted when it is needed

    @property
    def _stream(self) -> ShardedStream:
        return self._cursors.stream

    def get(self, name: GroupName) -> dict[str, str]:
        """Return the values that were set for a group."""
        stored = self._stream.get(CONFIG_KEY + group_key(name))
        return {} if stored is None else dict(json.loads(stored))

    def settings(self, name: GroupName) -> ShareSettings:
        """Return the effective configs of a group."""
        return settings_of_stored(self._stream.get(CONFIG_KEY + group_key(name)))

    def names(self, namespace: str) -> list[GroupName]:
        """Return the groups of a namespace that have values, sorted."""
        found = [
            parse_group_key(key, len(CONFIG_KEY))[0]
            for key in self._stream.values
            if key.startswith(CONFIG_KEY)
        ]
        return sorted(name for name in found if name.namespace == namespace)

    def put(self, name: GroupName, values: Mapping[str, str], on_done: OnDone) -> None:
        """Store the values of a group in place of those before; none removes the entry.

        Errors: ``PolicyViolation`` for a group too many; ``NotLeader`` for a shard of another
        node; those of the log come to ``on_done``.
        """
        key = CONFIG_KEY + group_key(name)
        stored = json.dumps(dict(values)).encode() if values else None
        change = (stored is not None) - (self._stream.get(key) is not None)
        if self._count is None:
            self._count = sum(key.startswith(CONFIG_KEY) for key in self._stream.values)
        if change > 0 and self._count >= self._groups_max:
            raise PolicyViolation(f"at most {self._groups_max} groups have configs")
        self._stream.put([(key, stored)], on_done)
        self._count += change
