"""Mapping of RocketMQ's messages to records of the log and back. All units change here.

    RocketMQ                   unit    record
    body                       bytes   value, decompressed; of a null value: empty
    queue id, queue offset     -       partition and offset
    __SHARDINGKEY              text    key; of other protocols' keys: shown where they are UTF-8
    UNIQ_KEY                   text    message-id
    CORRELATION_ID             text    correlation-id
    TAGS, KEYS                 text    rocketmq.tags, rocketmq.keys
    other system properties    text    rocketmq.property.<name>
    user property              text    header of its name, UTF-8
    flag                       i32     rocketmq.flag, decimal; absent for 0
    born time                  ms      rocketmq.born-timestamp, decimal
    born host                  -       rocketmq.born-host, address and port as text
    reconsume times            -       rocketmq.reconsume-times, decimal; absent for 0
    store time                 ms      the record's timestamp
    physical offset            -       partition id * 2^40 + offset

A user property whose name is reserved is stored as ``rocketmq.user.<name>``. MSG_REGION, TRACE_ON
and CLUSTER are added when a message is shown, as a server adds them when it stores one; WAIT and
POP_CK, which are for the server, are not stored. A header of another protocol is shown as the
property of its name, where a property can be: a value that is no text is in base64, and
HEADGATE_BASE64 names those; a repeated name, an empty or null value, and what is above 32,767 bytes
are left out.
"""

from base64 import b64encode
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from adapters.rocketmq.remoting.message_codec import (
    NAME_END,
    PROPERTIES_BYTES_MAX,
    VALUE_END,
    StoredMessage,
    encode_host,
)
from gateway.config.base import parse_address
from gateway.contributions import header_prefixes
from gateway.model import DEDUP_ID, DELIVER_AT, EXPIRES_AT, MESSAGE_ID, Record, unix_ms_in

PHYSICAL_OFFSET_BITS: Final = 40
REGION: Final = "DefaultRegion"
_PARTITION_MASK: Final = (1 << 23) - 1
_I32_MAX: Final = (1 << 31) - 1
_I32_CHARS_MAX: Final = 11

UNIQUE_KEY: Final = "UNIQ_KEY"
SHARDING_KEY: Final = "__SHARDINGKEY"
TAGS: Final = "TAGS"
KEYS: Final = "KEYS"
BASE64_NAMES: Final = "HEADGATE_BASE64"

BORN_TIMESTAMP: Final = "rocketmq.born-timestamp"
BORN_HOST: Final = "rocketmq.born-host"
FLAG: Final = "rocketmq.flag"
RECONSUME_TIMES: Final = "rocketmq.reconsume-times"
SYSTEM_PREFIX: Final = "rocketmq.property."
USER_PREFIX: Final = "rocketmq.user."
_OWN_PREFIX: Final = "rocketmq."

_HEADERS: Final[Mapping[str, str]] = {
    UNIQUE_KEY: MESSAGE_ID,
    "CORRELATION_ID": "correlation-id",
    TAGS: "rocketmq.tags",
    KEYS: "rocketmq.keys",
}
_PROPERTIES: Final = {header: name for name, header in _HEADERS.items()}
_NOT_STORED: Final = frozenset(
    {"MSG_REGION", "TRACE_ON", "CLUSTER", "WAIT", "POP_CK", SHARDING_KEY}
)
SYSTEM_PROPERTIES: Final = frozenset(
    {
        "DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "RETRY_TOPIC",
        "REAL_TOPIC", "REAL_QID", "TRAN_MSG", "PGROUP", "MIN_OFFSET", "MAX_OFFSET", "BUYER_ID",
        "ORIGIN_MESSAGE_ID", "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG", "RECONSUME_TIME",
        "EXTEND_UNIQ_INFO", "MAX_RECONSUME_TIMES", "CONSUME_START_TIME", "INNER_NUM",
        "INNER_BASE", "DUP_INFO", "CHECK_IMMUNITY_TIME_IN_SECONDS", "INSTANCE_ID",
        "REPLY_TO_CLIENT", "TTL", "ARRIVE_TIME", "PUSH_REPLY_TIME", "MSG_TYPE",
        "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "TRACE_CONTEXT",
        "__transactionId__", BASE64_NAMES,
    }
)  # fmt: skip
"""Properties of the protocol that are stored as ``rocketmq.property.<name>``."""
_RESERVED: Final = frozenset({MESSAGE_ID, DEDUP_ID, DELIVER_AT, EXPIRES_AT, "correlation-id"})
BUILT_IN_PREFIXES: Final = header_prefixes()

_HOSTS_MAX: Final = 1_024
_NO_HOST: Final = bytes(8)

Header = tuple[str, bytes | None]


class Origin(NamedTuple):
    """Origin of a message, as its producer states it; ``born_host`` is the producer's address."""

    flag: int
    born_unix_ms: int
    born_host: str
    reconsume_times: int = 0


class Placed(NamedTuple):
    """Place of a partition's messages, as they are shown. ``store_host`` is encoded."""

    topic: str
    queue_id: int
    partition_id: int
    store_host: bytes
    cluster: str


def physical_offset(partition_id: int, offset: int) -> int:
    """Return the number that names a record of any partition, of those with an id below 2^23.

    >>> divmod(physical_offset(3, 7), 1 << PHYSICAL_OFFSET_BITS)
    (3, 7)
    """
    return (partition_id & _PARTITION_MASK) << PHYSICAL_OFFSET_BITS | offset


# --- into the log


def key_of(properties: Mapping[str, str]) -> bytes | None:
    """Return the record's key."""
    key = properties.get(SHARDING_KEY)
    return None if key is None else key.encode()


def headers_of(
    properties: Mapping[str, str],
    origin: Origin,
    reserved_prefixes: tuple[str, ...] = BUILT_IN_PREFIXES,
) -> list[Header]:
    """Return the headers of a message: its properties in order, then its origin."""
    headers: list[Header] = [
        (_header_name(name, reserved_prefixes), value.encode())
        for name, value in properties.items()
        if name not in _NOT_STORED
    ]
    headers += [
        (BORN_TIMESTAMP, b"%d" % origin.born_unix_ms),
        (BORN_HOST, origin.born_host.encode()),
    ]
    if origin.flag:
        headers.append((FLAG, b"%d" % origin.flag))
    if origin.reconsume_times:
        headers.append((RECONSUME_TIMES, b"%d" % origin.reconsume_times))
    return headers


def _header_name(name: str, reserved_prefixes: tuple[str, ...]) -> str:
    known = _HEADERS.get(name)
    if known is not None:
        return known
    if name in SYSTEM_PROPERTIES:
        return SYSTEM_PREFIX + name
    if name in _RESERVED or name.startswith(reserved_prefixes):
        return USER_PREFIX + name
    return name


# --- out of the log


def message_of(record: Record, placed: Placed) -> StoredMessage:
    """Return a record as RocketMQ's consumers see it."""
    own = {name: value for name, value in record.headers if name.startswith(_OWN_PREFIX)}
    return StoredMessage(
        placed.topic,
        placed.queue_id,
        record.offset,
        physical_offset(placed.partition_id, record.offset),
        _i32(own.get(FLAG)),
        unix_ms_in(own.get(BORN_TIMESTAMP)) or record.timestamp_unix_ms,
        _host(own.get(BORN_HOST)),
        record.timestamp_unix_ms,
        placed.store_host,
        _i32(own.get(RECONSUME_TIMES)),
        record.value or b"",
        properties_of(record, placed.cluster),
    )


def properties_of(record: Record, cluster: str) -> dict[str, str]:
    """Return the properties of a record, within the bytes that a message may have of them."""
    properties = {"MSG_REGION": REGION, "TRACE_ON": "true", "CLUSTER": cluster}
    room_bytes = PROPERTIES_BYTES_MAX - _size_bytes(properties.items())
    encoded: list[str] = []
    for name, value in _shown(record):
        if not value or name in properties or not _is_name(name):
            continue
        text = _text(value)
        if text is None:
            text = b64encode(value).decode()
            encoded.append(name)
        size_bytes = _size_bytes(((name, text),)) + (len(name.encode()) + 1) * 2
        if size_bytes <= room_bytes:
            room_bytes -= size_bytes
            properties[name] = text
    names = [name for name in encoded if name in properties]
    if names:
        properties[BASE64_NAMES] = " ".join(names)
    return properties


def _shown(record: Record) -> Iterable[Header]:
    """Yield names of properties and their values, those of the protocol first."""
    yield SHARDING_KEY, record.key
    for name, value in record.headers:
        if name in _PROPERTIES:
            yield _PROPERTIES[name], value
        elif name.startswith(SYSTEM_PREFIX):
            yield name.removeprefix(SYSTEM_PREFIX), value
    for name, value in record.headers:
        if name.startswith(USER_PREFIX):
            yield name.removeprefix(USER_PREFIX), value
        elif name not in _PROPERTIES and not name.startswith(_OWN_PREFIX):
            yield name, value


def _is_name(name: str) -> bool:
    return bool(name) and NAME_END not in name and VALUE_END not in name


def _text(value: bytes) -> str | None:
    """Return a value as text, None for one that no property can have."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return None if NAME_END in text or VALUE_END in text else text


def _size_bytes(properties: Iterable[tuple[str, str]]) -> int:
    return sum(len(name.encode()) + len(value.encode()) + 2 for name, value in properties)


def _i32(value: bytes | None) -> int:
    """Return a number in a header; 0 for what is none, as clients can set headers."""
    text = (value or b"").removeprefix(b"-")
    if value is None or not text.isdigit() or len(value) > _I32_CHARS_MAX:
        return 0
    return max(-_I32_MAX, min(int(value), _I32_MAX))


@lru_cache(maxsize=_HOSTS_MAX)
def _host(value: bytes | None) -> bytes:
    """Return an encoded host; that of no address for what is none."""
    try:
        return encode_host(parse_address((value or b"").decode()))
    except ValueError:
        return _NO_HOST
