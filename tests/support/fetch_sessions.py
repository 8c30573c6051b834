"""Fetch requests of incremental sessions by a second codec (kio), and their answers."""

import base64
import importlib
import io
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient
from kio.serial import entity_reader, entity_writer

from tests.support.kafka_wire import FETCH, Connection

BY_NAME: Final = 11
BY_ID: Final = 13
FULL: Final = 0
FINAL: Final = -1

Key = tuple[str | UUID, int]


class Fetched(NamedTuple):
    """One partition of an answer."""

    error_code: int
    high_watermark: int
    log_start_offset: int
    records: bytes
    stable_end: int = -1
    aborted: tuple[tuple[int, int], ...] | None = None


class Answer(NamedTuple):
    """An answer: its error, its session, and its partitions in order."""

    error_code: int
    session_id: int
    partitions: dict[Key, Fetched]


def session_request(
    version: int,
    session_id: int,
    epoch: int,
    wanted: Mapping[Key, int] | None = None,
    *,
    forgotten: Sequence[Key] = (),
    wait_ms: int = 0,
    bytes_min: int = 1,
    bytes_max: int = 50 << 20,
    partition_bytes_max: int = 1 << 20,
    isolation_level: int = 0,
) -> bytes:
    """Encode the body of a request for offsets by topic and partition."""
    m = importlib.import_module(f"kio.schema.fetch.v{version}.request")
    topics = tuple(
        m.FetchTopic(
            **_ref(ref),
            partitions=(
                m.FetchPartition(
                    partition=number, fetch_offset=at, partition_max_bytes=partition_bytes_max
                ),
            ),
        )
        for (ref, number), at in (wanted or {}).items()
    )
    entity = m.FetchRequest(
        max_wait=timedelta(milliseconds=wait_ms),
        min_bytes=bytes_min,
        max_bytes=bytes_max,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=epoch,
        topics=topics,
        forgotten_topics_data=tuple(
            m.ForgottenTopic(**_ref(ref), partitions=(number,)) for ref, number in forgotten
        ),
        rack_id="",
    )
    out = io.BytesIO(b"\0" if version >= BY_ID else b"")  # the header's tagged fields
    out.seek(0, io.SEEK_END)
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def session_answer(version: int, body: bytes) -> Answer:
    """Decode an answer, without its correlation id."""
    m = importlib.import_module(f"kio.schema.fetch.v{version}.response")
    entity, _ = entity_reader(m.FetchResponse)(body[1:] if version >= BY_ID else body, 0)
    partitions = {
        (_ref_of(topic), part.partition_index): Fetched(
            int(part.error_code), part.high_watermark, part.log_start_offset,
            bytes(part.records or b""), part.last_stable_offset,
            None if part.aborted_transactions is None else tuple(
                (one.producer_id, one.first_offset) for one in part.aborted_transactions
            ),
        )
        for topic in entity.responses
        for part in topic.partitions
    }  # fmt: skip
    return Answer(int(entity.error_code), entity.session_id, partitions)


def call(
    connection: Connection, version: int, session_id: int, epoch: int, *rest: Any, **more: Any
) -> Answer:
    """Send a request and return its answer; see ``session_request``."""
    body = session_request(version, session_id, epoch, *rest, **more)
    return session_answer(version, connection.call(FETCH, version, body))


def topic_id(bootstrap: str, topic: str) -> UUID:
    """Return a topic's id, by the admin protocol."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.describe_topics(TopicCollection([topic]))[topic].result(30)
    return UUID(bytes=base64.urlsafe_b64decode(str(found.topic_id) + "=="))


def _ref(ref: str | UUID) -> dict[str, Any]:
    return {"topic": ref} if isinstance(ref, str) else {"topic_id": ref}


def _ref_of(topic: Any) -> str | UUID:
    ref = getattr(topic, "topic", None) or topic.topic_id
    return ref if isinstance(ref, UUID) else str(ref)
