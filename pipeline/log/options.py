"""Options of ``format("headgate")``, checked: the topics and offsets to read.

Spark passes options as texts, with names in any case.
"""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Final, Literal, NamedTuple, cast, get_args

from gateway.errors import RequestError
from gateway.model import DEFAULT_NAMESPACE
from pipeline.log.columns import COLUMNS

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)
_DIGITS: Final = re.compile(r"[0-9]{1,18}")  # fits 64 bits
_MIB: Final = 1024 * 1024
_S3_NAMES: Final = (
    "catalog", "bucket", "prefix", "endpointUrl", "region", "profile", "addressing",
)  # fmt: skip
_NAMES: Final = (
    "path", *_S3_NAMES, "namespace", "topics", "topicsPattern", "startingOffsets",
    "endingOffsets", "startingTime", "endingTime", "columns", "headerColumns",
    "maxRecordsPerTrigger", "maxBytesPerTrigger", "splitBytes", "failOnDataLoss",
    "includeUnsynced", "pushFilters",
)  # fmt: skip
_SET_BY_SPARK: Final = {"checkpointlocation"}

Addressing = Literal["auto", "path", "virtual"]
Offsets = Mapping[str, Mapping[str, int]]  # topic -> partition number -> offset


class BadOption(RequestError):
    """An option is unknown or has an invalid value; one line names it."""


class S3Place(NamedTuple):
    """A log in a bucket. ``catalog``: the SQLAlchemy URL of the metadata database.

    Texts as in ``[storage]`` of the node's config; empty ones mean the defaults of AWS tools.
    """

    catalog: str
    bucket: str
    prefix: str
    endpoint_url: str
    region: str
    profile: str
    addressing: Addressing

    def __repr__(self) -> str:
        """Omit the catalog, whose URL may hold a password."""
        return f"S3Place(s3://{self.bucket}/{self.prefix})"


class Options(NamedTuple):
    """Checked options of a read. ``s3`` None: the log is in ``data_dir``.

    ``topics`` None: all that the pattern matches. Times are unix ms, -1 for none.

    ``starting`` and ``ending`` are ``earliest``, ``latest`` or offsets; a partition that the
    offsets do not name is read from its start, or to its end.
    """

    data_dir: Path
    s3: S3Place | None
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
    bytes_per_trigger_max: int
    split_bytes: int
    fails_on_loss: bool
    with_unsynced: bool
    pushes_filters: bool

    @property
    def described(self) -> str:
        """Place of the log, for messages."""
        if self.s3 is None:
            return str(self.data_dir)
        return f"s3://{self.s3.bucket}/{self.s3.prefix}"

    def wants(self, namespace: str, topic: str) -> bool:
        """Return whether the options include a topic."""
        if namespace != self.namespace or topic.startswith("__"):
            return False
        if self.topics is not None:
            return topic in self.topics
        return self.pattern is None or self.pattern.fullmatch(topic) is not None


def parse_options(given: Mapping[str, str]) -> Options:
    """Parse the options. Error: ``BadOption``."""
    values = _known(given)
    if "topics" in values and "topicsPattern" in values:
        raise BadOption("topics and topicsPattern contradict each other: give one")
    s3 = _s3_place(values)
    return Options(
        data_dir=Path(values.get("path", "")),
        s3=s3,
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
        bytes_per_trigger_max=_number(values, "maxBytesPerTrigger", 0),
        split_bytes=max(_number(values, "splitBytes", 64 * _MIB), 1),
        fails_on_loss=_flag(values, "failOnDataLoss", default=True),
        with_unsynced=_flag(values, "includeUnsynced", default=False),
        pushes_filters=_flag(values, "pushFilters", default=False),
    )


def _known(given: Mapping[str, str]) -> dict[str, str]:
    """Return the values by canonical names. Error: ``BadOption``."""
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
    return values


def _s3_place(values: Mapping[str, str]) -> S3Place | None:
    """Return the bucket place of the options, None for a folder. Error: ``BadOption``."""
    named = [name for name in _S3_NAMES if name in values]
    if not named:
        if "path" not in values:
            raise BadOption(
                "path is missing: the node's data directory, as in .load('data'); or give catalog "
                "and bucket for a log in S3"
            )
        return None
    if "path" in values:
        raise BadOption(
            f"path and {named[0]} contradict each other: one is of files, one of S3"
        )
    for name in ("catalog", "bucket"):
        if not values.get(name):
            raise BadOption(f"{name} is missing: a log in S3 is named by catalog and bucket")
    addressing = values.get("addressing", "auto")
    if addressing not in get_args(Addressing):
        known = ", ".join(get_args(Addressing))
        raise BadOption(f"addressing {addressing!r} is not one of {known}")
    return S3Place(
        catalog=values["catalog"],
        bucket=values["bucket"],
        prefix=values.get("prefix", ""),
        endpoint_url=values.get("endpointUrl", ""),
        region=values.get("region", ""),
        profile=values.get("profile", ""),
        addressing=cast("Addressing", addressing),
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
    if _DIGITS.fullmatch(text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadOption(f"{name} {text!r} is neither unix ms nor ISO 8601") from None
    if moment.tzinfo is None:
        raise BadOption(f"{name} {text!r} does not say its time zone, as in 2026-01-31T12:00Z")
    if moment < EPOCH:
        raise BadOption(f"{name} {text!r} is before 1970")
    return (moment - EPOCH) // MICROSECOND // 1_000


def _columns(text: str | None) -> tuple[str, ...]:
    if text is None:
        return COLUMNS
    chosen = _list(text)
    if not chosen:
        raise BadOption(f"columns names none of {', '.join(COLUMNS)}")
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
    if not _DIGITS.fullmatch(text):
        raise BadOption(f"{name} {text!r} is not a number")
    return int(text)


def _flag(values: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = values.get(name, str(default)).lower()
    if text not in {"true", "false"}:
        raise BadOption(f"{name} {text!r} is not true or false")
    return text == "true"
