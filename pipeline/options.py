"""The options of ``format("headgate")``, checked: what to read, from where to where.

Spark hands options over as texts, with names in any case.
"""

import json
import re
from collections.abc import Mapping
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Final, NamedTuple

from gateway.errors import RequestError
from gateway.model import DEFAULT_NAMESPACE
from pipeline.columns import COLUMNS

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_MIB: Final = 1024 * 1024
_NAMES: Final = (
    "path", "namespace", "topics", "topicsPattern", "startingOffsets", "endingOffsets",
    "startingTime", "endingTime", "columns", "headerColumns", "maxRecordsPerTrigger",
    "splitBytes", "failOnDataLoss", "includeUnsynced",
)  # fmt: skip
_SET_BY_SPARK: Final = {"checkpointlocation"}

Offsets = Mapping[str, Mapping[str, int]]  # topic -> partition number -> offset


class BadOption(RequestError):
    """An option that is unknown, or whose value makes no sense: one line that says which."""


class Options(NamedTuple):
    """``topics`` None: all that the pattern matches. Times are unix ms, -1 for none.

    ``starting`` and ``ending`` are ``earliest``, ``latest`` or offsets; a partition that the
    offsets do not name is read from its start, or to its end.
    """

    data_dir: Path
    namespace: str
    topics: frozenset[str] | None
    pattern: re.Pattern[str] | None
    starting: str | Offsets
    ending: str | Offsets
    start_unix_ms: int
    end_unix_ms: int
    columns: tuple[str, ...]
    header_columns: tuple[str, ...]
    records_per_trigger_max: int
    split_bytes: int
    fails_on_loss: bool
    with_unsynced: bool

    def wants(self, namespace: str, topic: str) -> bool:
        """Whether records of a topic are asked for."""
        if namespace != self.namespace or topic.startswith("__"):
            return False
        if self.topics is not None:
            return topic in self.topics
        return self.pattern is None or self.pattern.fullmatch(topic) is not None


def parse_options(given: Mapping[str, str]) -> Options:
    """Return what the options say. Error: ``BadOption``."""
    known = {name.lower(): name for name in _NAMES}
    values: dict[str, str] = {}
    for name, value in given.items():
        lowered = name.lower()
        if lowered in known:
            values[known[lowered]] = value
        elif lowered not in _SET_BY_SPARK:
            near = get_close_matches(name, _NAMES, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(_NAMES)}"
            raise BadOption(f"unknown option {name!r}; {hint}")
    if "path" not in values:
        raise BadOption("path is missing: the node's data directory, as in .load('data')")
    if "topics" in values and "topicsPattern" in values:
        raise BadOption("topics and topicsPattern contradict each other: give one")
    return Options(
        data_dir=Path(values["path"]),
        namespace=values.get("namespace", DEFAULT_NAMESPACE),
        topics=frozenset(_list(values["topics"])) if "topics" in values else None,
        pattern=_pattern(values.get("topicsPattern")),
        starting=_offsets("startingOffsets", values.get("startingOffsets", EARLIEST)),
        ending=_offsets("endingOffsets", values.get("endingOffsets", LATEST)),
        start_unix_ms=_time("startingTime", values.get("startingTime")),
        end_unix_ms=_time("endingTime", values.get("endingTime")),
        columns=_columns(values.get("columns")),
        header_columns=_header_columns(values.get("headerColumns", "")),
        records_per_trigger_max=_number(values, "maxRecordsPerTrigger", 0),
        split_bytes=max(_number(values, "splitBytes", 64 * _MIB), 1),
        fails_on_loss=_flag(values, "failOnDataLoss", default=True),
        with_unsynced=_flag(values, "includeUnsynced", default=False),
    )


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _pattern(text: str | None) -> re.Pattern[str] | None:
    try:
        return None if text is None else re.compile(text)
    except re.error as error:
        raise BadOption(f"topicsPattern {text!r}: {error}") from None


def _offsets(name: str, text: str) -> str | Offsets:
    if text in {EARLIEST, LATEST}:
        return text
    try:
        found = json.loads(text)
        return {
            str(topic): {str(int(number)): int(offset) for number, offset in places.items()}
            for topic, places in found.items()
        }
    except (ValueError, AttributeError, TypeError):
        example = '{"orders": {"0": 17}}'
        raise BadOption(f"{name} {text!r} is not earliest, latest or like {example}") from None


def _time(name: str, text: str | None) -> int:
    if text is None:
        return -1
    if text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadOption(f"{name} {text!r} is neither unix ms nor ISO 8601") from None
    if moment.tzinfo is None:
        raise BadOption(f"{name} {text!r} does not say its time zone, as in 2026-01-31T12:00Z")
    return int(moment.timestamp() * 1_000)


def _columns(text: str | None) -> tuple[str, ...]:
    if text is None:
        return COLUMNS
    chosen = _list(text)
    for name in chosen:
        if name not in COLUMNS:
            raise BadOption(f"columns: {name!r} is not one of {', '.join(COLUMNS)}")
    return tuple(name for name in COLUMNS if name in chosen)


def _header_columns(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(_list(text)))
    for name in names:
        if name in COLUMNS:
            raise BadOption(
                f"headerColumns: {name!r} is a column already; read it in `headers`"
            )
    return names


def _number(values: Mapping[str, str], name: str, default: int) -> int:
    text = values.get(name)
    if text is None:
        return default
    if not text.isdigit():
        raise BadOption(f"{name} {text!r} is not a number")
    return int(text)


def _flag(values: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = values.get(name, str(default)).lower()
    if text not in {"true", "false"}:
        raise BadOption(f"{name} {text!r} is not true or false")
    return text == "true"
