"""PUBLISH packets to records of the log and back. All changes of units happen here.

    MQTT                      unit      record
    payload                   bytes    value; empty stays empty, null comes as empty
    topic                     UTF-8     key, or header mqtt.topic when the key is another
    client identifier         UTF-8     mqtt.client
    QoS, RETAIN               digit     mqtt.qos, mqtt.retain, when not the default
    Payload Format Indicator  digit     mqtt.payload-format-indicator
    Message Expiry Interval   s         expires-at, unix ms (time of the publish + it)
    Content Type              UTF-8     content-type
    Response Topic            UTF-8     reply-to
    Correlation Data          bytes    correlation-id
    User Property             UTF-8     header of that name, in order, repeated

``headers.py`` turns properties into headers and back; docs/protocols/mqtt.md has the whole
table, with what becomes of headers that no user property can hold.
"""

from collections import Counter
from collections.abc import Callable
from typing import TypeAlias

from adapters.mqtt.records.batch_reading import BatchReading
from adapters.mqtt.records.headers import headers_of
from adapters.mqtt.records.mixed_topic_batch import MixedTopicBatch
from adapters.mqtt.records.record_kinds import (
    CACHED_BLOCK_BYTES_MAX,
    CACHED_BLOCKS_MAX,
    CORRUPT_BATCH,
)
from adapters.mqtt.route_config import RouteConfig
from adapters.mqtt.routes import RoutedTopic
from adapters.mqtt.wire import NO_PROPERTIES, PublishProperties, PublishRun
from features.expiry import expires_at_unix_ms
from gateway.errors import CorruptBatch, UnsupportedFormat
from gateway.model import (
    COMPRESSION_MASK,
    EXPIRES_AT,
    HEADER_BYTES,
    Buffer,
    parse_batch_header,
)
from gateway.records.codec import DECOMPRESSED_BYTES_MAX, encode_headers
from gateway.records.compression import decompress
from gateway.records.record_run import RecordRun

SteadyDeadline: TypeAlias = Callable[[int, int], int]  # of (deadline, when it was made)


# Into the log.

_Kind = tuple[bytes | None, str, int | None, bool, PublishProperties | None, tuple[str, ...]]
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
    prefixes = routed.reserved_prefixes
    if run.expires_at_unix_ms:
        expires_at = (EXPIRES_AT, b"%d" % run.expires_at_unix_ms)
        headers = headers_of(
            topic, client_id, qos, run.retain, properties, reserved_prefixes=prefixes
        )
        return encode_headers([*headers, expires_at])
    # Most have none, and the hash of eight fields takes longer than all the rest.
    shown = None if properties is NO_PROPERTIES else properties
    kind = (topic, client_id, qos, run.retain, shown, () if shown is None else prefixes)
    block = _blocks.get(kind)
    if block is None:
        block = encode_headers(
            headers_of(
                topic, client_id, qos, run.retain, properties, reserved_prefixes=prefixes
            )
        )
        if len(block) <= CACHED_BLOCK_BYTES_MAX:
            if len(_blocks) >= CACHED_BLOCKS_MAX:
                _blocks.clear()
            _blocks[kind] = block
    return block


# Out of the log.


def _as_stored(deadline_unix_ms: int, _stamped_unix_ms: int) -> int:
    return deadline_unix_ms


def runs_of_batch(
    batch: Buffer,
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
    found = mixed_runs_of_batch(
        batch,
        route,
        from_offset=from_offset,
        skipped=skipped,
        wants=wants,
        steady_deadline=steady_deadline,
        mixes=False,
    )
    return [run for run in found if isinstance(run, PublishRun)]


def mixed_runs_of_batch(  # noqa: PLR0913 - as runs_of_batch, and one more
    batch: Buffer,
    route: RouteConfig,
    *,
    from_offset: int,
    skipped: Counter[str],
    wants: Callable[[bytes], bool] | None = None,
    steady_deadline: SteadyDeadline = _as_stored,
    mixes: bool = True,
) -> list[PublishRun | MixedTopicBatch]:
    """Return the same as ``runs_of_batch``, but as mixed topics where topics take turns."""
    try:
        header = parse_batch_header(batch)
        if header.is_control:
            return []
        data = bytes(memoryview(batch)[HEADER_BYTES : header.size_bytes])
        data = decompress(
            header.attributes & COMPRESSION_MASK, data, bytes_max=DECOMPRESSED_BYTES_MAX
        )
        reading = BatchReading(data, header, route, skipped, wants)
        runs = reading.runs(from_offset, mixes=mixes)
    except (CorruptBatch, UnsupportedFormat, IndexError):
        skipped[CORRUPT_BATCH] += 1
        return []
    for run in runs:
        if isinstance(run, PublishRun) and run.expires_at_unix_ms:  # mixed topics's never do
            # Of a batch that waited this is when it was due, and its intervals began.
            stamped_unix_ms = header.max_timestamp_unix_ms
            found = steady_deadline(run.expires_at_unix_ms, stamped_unix_ms)
            run.expires_at_unix_ms = max(found, 1)  # 0 would be never
    return runs
