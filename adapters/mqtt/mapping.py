"""PUBLISH packets to records of the log and back. All changes of units happen here.

    MQTT                      unit      record
    payload                   octets    value; empty stays empty, null comes as empty
    topic                     UTF-8     key, or header mqtt.topic when the key is another
    client identifier         UTF-8     mqtt.client
    QoS, RETAIN               digit     mqtt.qos, mqtt.retain, when not the default
    Payload Format Indicator  digit     mqtt.payload-format-indicator
    Message Expiry Interval   s         expires-at, unix ms (time of the publish + it)
    Content Type              UTF-8     content-type
    Response Topic            UTF-8     reply-to
    Correlation Data          octets    correlation-id
    User Property             UTF-8     header of that name, in order, repeated

``headers.py`` turns properties into headers and back; docs/protocols/mqtt.md has the whole
table, with what becomes of headers that no user property can hold.
"""

import struct
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeAlias

from adapters.mqtt.config import RouteConfig
from adapters.mqtt.filters import is_topic_name
from adapters.mqtt.headers import (
    NULL_VALUE,
    StoredHeaders,
    headers_of,
    parse_headers,
    read_nullable,
)
from adapters.mqtt.passing_over import TOPIC_OCTETS, pass_over
from adapters.mqtt.routes import RoutedTopic
from adapters.mqtt.wire import NO_PROPERTIES, PublishProperties, PublishRun
from features.expiry import expires_at_unix_ms
from gateway.compression import decompress
from gateway.errors import CorruptBatch, UnsupportedFormat
from gateway.model import (
    COMPRESSION_MASK,
    EXPIRES_AT,
    HEADER_BYTES,
    TWO_OCTETS,
    ZIGZAG,
    BatchHeader,
    Octets,
    parse_batch_header,
    read_varint,
)
from gateway.records import DECOMPRESSED_BYTES_MAX, RecordRun, encode_headers

NO_TOPIC_NAME: Final = "no_topic_name"  # neither key nor mqtt.topic can be a topic's name
CORRUPT_BATCH: Final = "corrupt_batch"
HEADER_TOO_LONG: Final = "header_too_long"  # the message goes out, without that header

CACHED_BLOCKS_MAX: Final = 4_096
CACHED_BLOCK_BYTES_MAX: Final = 1_024  # larger ones are made and read each time
_EMPTY_RECORD_BYTES: Final = 7
_STRETCH_AFTER: Final = 4  # records of one form, before it is tried to read more at once
# The zigzag varints of offset deltas in a row: those of one octet, those of two octets.
_ONE_OCTET: Final = bytes(range(0, 128, 2))
_TWO_OCTETS: Final = b"".join(
    bytes(octet for low in range(128, 256, 2) for octet in (low, high))
    for high in range(1, 128)
)
_DELTAS: Final = ((_ONE_OCTET, 0), (_TWO_OCTETS, 64))  # and which delta is the first

_parse_cached = lru_cache(maxsize=CACHED_BLOCKS_MAX)(parse_headers)


SteadyDeadline: TypeAlias = Callable[[int, int], int]  # of (deadline, when it was made)


# Into the log.

_Kind = tuple[bytes | None, str, int | None, bool, PublishProperties | None]
_blocks: dict[_Kind, bytes] = {}


def record_run(
    run: PublishRun, routed: RoutedTopic, client_id: str, now_unix_ms: int
) -> RecordRun:
    """Return the records of a publish; the run itself goes along as their native form.

    Tells the run who published it and when it expires (as is stored: ``now_unix_ms`` and its
    interval), as those need to know who get it live.
    """
    run.client_id = client_id
    if run.properties.message_expiry_interval is not None:
        run.expires_at_unix_ms = expires_at_unix_ms(
            now_unix_ms, run.properties.message_expiry_interval
        )
    block = header_block(run, routed, client_id)
    return RecordRun(routed.key, run.payloads, block, now_unix_ms, run)


def header_block(run: PublishRun, routed: RoutedTopic, client_id: str) -> bytes:
    """Return the headers of a run's records, encoded; remembered unless they expire."""
    topic = run.topic if routed.topic_header else None
    qos = run.qos if run.qos != routed.route.default_qos else None
    properties = run.properties
    if run.expires_at_unix_ms:
        expires_at = (EXPIRES_AT, b"%d" % run.expires_at_unix_ms)
        headers = headers_of(topic, client_id, qos, run.retain, properties)
        return encode_headers([*headers, expires_at])
    # Most have none, and the hash of eight fields takes longer than all the rest.
    shown = None if properties is NO_PROPERTIES else properties
    kind = (topic, client_id, qos, run.retain, shown)
    block = _blocks.get(kind)
    if block is None:
        block = encode_headers(headers_of(topic, client_id, qos, run.retain, properties))
        if len(block) <= CACHED_BLOCK_BYTES_MAX:
            if len(_blocks) >= CACHED_BLOCKS_MAX:
                _blocks.clear()
            _blocks[kind] = block
    return block


# Out of the log.


def _as_stored(deadline_unix_ms: int, _stamped_unix_ms: int) -> int:
    return deadline_unix_ms


def runs_of_batch(
    batch: Octets,
    route: RouteConfig,
    *,
    from_offset: int,
    skipped: Counter[str],
    wants: Callable[[bytes], bool] | None = None,
    steady_deadline: SteadyDeadline = _as_stored,
) -> list[PublishRun]:
    """Return the messages of a batch from an offset on, as runs of one topic and one form.

    A run ends where key or headers change, and before a gap in the offsets. What cannot be
    shown is left out and counted in ``skipped``: records under ``NO_TOPIC_NAME``, headers under
    ``HEADER_TOO_LONG``, and a batch that contradicts itself or decompresses to more than
    ``DECOMPRESSED_BYTES_MAX`` under ``CORRUPT_BATCH``. Markers of transactions are no messages.

    With ``wants`` only the runs of topics come for which it is true; it gives one topic the same
    answer each time. The other records are passed over by their lengths: what is wrong in them
    is neither counted nor seen. ``steady_deadline`` is the clock's (``gateway.clock.Clock``).
    """
    try:
        header = parse_batch_header(batch)
        if header.is_control:
            return []
        data = bytes(memoryview(batch)[HEADER_BYTES : header.size_bytes])
        data = decompress(
            header.attributes & COMPRESSION_MASK, data, bytes_max=DECOMPRESSED_BYTES_MAX
        )
        runs = _read_runs(data, header, route, from_offset, skipped, wants)
    except (CorruptBatch, UnsupportedFormat, IndexError):
        skipped[CORRUPT_BATCH] += 1
        return []
    for run in runs:
        if run.expires_at_unix_ms:
            # Of a batch that waited this is when it was due, and its intervals began.
            stamped_unix_ms = header.max_timestamp_unix_ms
            found = steady_deadline(run.expires_at_unix_ms, stamped_unix_ms)
            run.expires_at_unix_ms = max(found, 1)  # 0 would be never
    return runs


def _read_runs(  # noqa: PLR0917 - as runs_of_batch
    data: bytes,
    header: BatchHeader,
    route: RouteConfig,
    from_offset: int,
    skipped: Counter[str],
    wants: Callable[[bytes], bool] | None,
) -> list[PublishRun]:
    """Return the runs of a batch's records. Errors: ``IndexError``, ``CorruptBatch``."""
    if not 0 <= header.record_count <= len(data) // _EMPTY_RECORD_BYTES:
        raise IndexError(f"{header.record_count} records in {len(data)} bytes")
    may_name_topics = wants is not None and TOPIC_OCTETS in data
    runs: list[PublishRun] = []
    payloads: list[bytes] = []
    shared: tuple[bytes | None, bytes, bool] | None = None  # key, headers, whether null
    position, offset_delta, left = 0, -1, header.record_count
    while left:
        start, previous_delta = position, offset_delta
        offset_delta, key, value, places = _slice_record(data, position)
        position = places[-1]
        left -= 1
        if not previous_delta < offset_delta <= header.last_offset_delta:
            raise IndexError(f"offset delta {offset_delta}")
        offset = header.base_offset + offset_delta
        if offset < from_offset:
            continue
        block = data[places[-2] : position]
        kind = (key, block, value is None)
        if kind != shared or offset_delta != previous_delta + 1:
            if wants is not None and not _is_wanted(key, block, wants):
                shared = None
                position, left = pass_over(
                    data, position, left, wants, may_name_topics=may_name_topics
                )
                continue
            run = _begin_run(key, block, route, offset, skipped, is_null=value is None)
            shared = kind if run is not None else None
            if run is None:
                continue
            payloads = run.payloads
            runs.append(run)
        payloads.append(value or b"")
        if left and value is not None and len(payloads) >= _STRETCH_AFTER:
            # As many as there are already: what is read in vain stays below what was of use.
            stretch = _stretch(data, start, offset_delta, places, min(left, len(payloads)))
            payloads += stretch
            position += len(stretch) * (position - start)
            offset_delta += len(stretch)
            left -= len(stretch)
    if position != len(data) or offset_delta > header.last_offset_delta:
        raise IndexError(f"{len(data) - position} bytes after the last record")
    return runs


def _is_wanted(key: bytes | None, block: bytes, wants: Callable[[bytes], bool]) -> bool:
    """Say whether anybody wants the topic of a record, of which the headers may say another."""
    topic = key
    if TOPIC_OCTETS in block:
        topic = _parse(block).topic or key
    return topic is not None and wants(topic)


def _parse(block: bytes) -> StoredHeaders:
    cached = len(block) <= CACHED_BLOCK_BYTES_MAX
    return _parse_cached(block) if cached else parse_headers(block)


def _begin_run(
    key: bytes | None,
    block: bytes,
    route: RouteConfig,
    offset: int,
    skipped: Counter[str],
    *,
    is_null: bool,
) -> PublishRun | None:
    """Return a run without payloads yet, or None for a record that no subscriber can be shown."""
    stored = _parse(block)
    topic = key if stored.topic is None else stored.topic
    if topic is None or (stored.topic is None and not is_topic_name(topic)):
        skipped[NO_TOPIC_NAME] += 1
        return None
    if stored.too_long_count:
        skipped[HEADER_TOO_LONG] += stored.too_long_count
    properties = stored.properties
    if is_null:
        properties = properties._replace(
            user_properties=(*properties.user_properties, NULL_VALUE)
        )
    run = PublishRun(
        topic,
        [],
        qos=route.default_qos if stored.qos is None else stored.qos,
        retain=stored.retain,
        properties=properties,
        client_id=stored.client_id,
    )
    run.base_offset = offset
    run.expires_at_unix_ms = stored.expires_at_unix_ms
    return run


# Where the parts of a record lie: offset delta and what follows it, value and what follows it
# (the headers), and where the next record begins.
_Places = tuple[int, int, int, int, int]


def _slice_record(
    data: bytes, position: int
) -> tuple[int, bytes | None, bytes | None, _Places]:
    """Return offset delta, key, value, and the places of the record that begins at a position.

    Varints of one octet are decoded in place, as in ``gateway.records``. Errors: ``IndexError``.
    """
    if (length := data[position]) < TWO_OCTETS:
        length, position = ZIGZAG[length], position + 1
    else:
        length, position = read_varint(data, position)
    end = position + length
    position += 1  # the attributes, of which none is defined
    if data[position] < TWO_OCTETS:
        delta_at = position + 1
    else:
        _, delta_at = read_varint(data, position)  # the timestamp's delta
    if (offset_delta := data[delta_at]) < TWO_OCTETS:
        offset_delta, delta_end = ZIGZAG[offset_delta], delta_at + 1
    else:
        offset_delta, delta_end = read_varint(data, delta_at)
    key, position = read_nullable(data, delta_end)
    value, value_end = read_nullable(data, position)
    # At least one octet follows, the count of headers.
    if not value_end < end <= len(data):
        raise IndexError(f"a record of {length} bytes does not hold its key and value")
    value_at = value_end - len(value or b"")
    return offset_delta, key, value, (delta_at, delta_end, value_at, value_end, end)


def _stretch(
    data: bytes, start: int, offset_delta: int, places: _Places, count_max: int
) -> list[bytes]:
    """Return the values of records that follow one and are as it is, but for value and offset.

    They have the same size, so the interpreter sees columns and no records: 0.2 us for each
    against 1.5 us. Empty when one of them differs in anything else: then each is looked at.
    """
    delta_at, delta_end, value_at, value_end, end = places
    width = delta_end - delta_at
    if width > len(_DELTAS):
        return []
    deltas, first_delta = _DELTAS[width - 1]
    at = (offset_delta + 1 - first_delta) * width
    count = min(count_max, (len(data) - end) // (end - start), (len(deltas) - at) // width)
    if count <= 0 or at < 0:  # (a varint may have more octets than it needs)
        return []
    layout = struct.Struct(
        f"{delta_at - start}s{width}s{value_at - delta_end}s"
        f"{value_end - value_at}s{end - value_end}s"
    )
    columns = tuple(
        zip(*layout.iter_unpack(data[end : end + count * layout.size]), strict=True)
    )
    wanted = (data[start:delta_at], None, data[delta_end:value_at], None, data[value_end:end])
    for column, octets in zip(columns, wanted, strict=True):
        if octets is not None and column.count(octets) != len(column):
            return []
    if b"".join(columns[1]) != deltas[at : at + count * width]:
        return []
    return list(columns[3])
