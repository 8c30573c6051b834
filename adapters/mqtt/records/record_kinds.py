"""Topic, QoS and properties of a record, cached by key and headers."""

from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from adapters.mqtt.records.headers import NULL_VALUE, StoredHeaders, parse_headers
from adapters.mqtt.records.record_skipping import TOPIC_BYTES
from adapters.mqtt.route_config import RouteConfig
from adapters.mqtt.subscriptions.filters import is_topic_name
from adapters.mqtt.wire import PublishRun

NO_TOPIC_NAME: Final = "no_topic_name"  # neither key nor mqtt.topic can be a topic's name
CORRUPT_BATCH: Final = "corrupt_batch"
HEADER_TOO_LONG: Final = "header_too_long"  # the message goes out, without that header

CACHED_BLOCKS_MAX: Final = 4_096
CACHED_BLOCK_BYTES_MAX: Final = 1_024  # larger ones are made and read each time

_parse_cached = lru_cache(maxsize=CACHED_BLOCKS_MAX)(parse_headers)
_kinds: dict[tuple[bytes | None, bytes, int], PublishRun | None] = {}


def kind_of(key: bytes | None, block: bytes, route: RouteConfig) -> PublishRun | None:
    """Return what messages with such a key and headers have in common, remembered.

    None for what expires, is not shown, or loses a header: these are counted one by one.
    """
    known = (key, block, route.default_qos)
    try:
        return _kinds[known]
    except KeyError:
        pass
    stored = _parse(block)
    topic = key if stored.topic is None else stored.topic
    kind: PublishRun | None = None
    if (
        topic is not None
        and (stored.topic is not None or is_topic_name(topic))
        and not (stored.expires_at_unix_ms or stored.too_long_count)
    ):
        kind = begin_run(key, block, route, -1, Counter(), is_null=False)
    if len(key or b"") + len(block) <= CACHED_BLOCK_BYTES_MAX:
        if len(_kinds) >= CACHED_BLOCKS_MAX:
            _kinds.clear()
        _kinds[known] = kind
    return kind


def is_wanted(key: bytes | None, block: bytes, wants: Callable[[bytes], bool]) -> bool:
    """Say whether anybody wants the topic of a record, of which the headers may say another."""
    topic = key
    if TOPIC_BYTES in block:
        topic = _parse(block).topic or key
    return topic is not None and wants(topic)


def _parse(block: bytes) -> StoredHeaders:
    cached = len(block) <= CACHED_BLOCK_BYTES_MAX
    return _parse_cached(block) if cached else parse_headers(block)


def begin_run(
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
