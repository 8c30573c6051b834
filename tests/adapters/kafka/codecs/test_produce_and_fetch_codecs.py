"""Produce, Fetch and ApiVersions in every version, against a second codec (kio)."""

import importlib
import io
from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer

from adapters.kafka.codec import decode_request_header, encode_api_versions_response
from adapters.kafka.codecs.fetch_codec import (
    FetchPartition,
    FetchResult,
    decode_fetch_request,
    encode_fetch_response,
)
from adapters.kafka.codecs.produce_codec import (
    ProducedResult,
    decode_produce_request,
    encode_produce_response,
)
from adapters.kafka.handlers import APIS
from features.open_transactions import AbortedTransaction
from gateway.errors import PeerError
from tests.support.examples import examples

TOPIC_ID = UUID("6f1c9b1e-0f6e-4b0c-9a8f-0123456789ab")
PRODUCE_VERSIONS = list(APIS[0].versions)
FETCH_VERSIONS = list(APIS[1].versions)


def schema(api: str, version: int, kind: str) -> Any:
    return importlib.import_module(f"kio.schema.{api}.v{version}.{kind}")


def encoded(entity: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def decoded(entity_type: Any, data: bytes) -> Any:
    entity, size = entity_reader(entity_type)(data, 0)
    assert size == len(data)
    return entity


def topic_key(version: int, *, ids_from: int) -> dict[str, Any]:
    return {"topic_id": TOPIC_ID} if version >= ids_from else {"name": "orders.v1"}


def produce_request(version: int) -> bytes:
    m = schema("produce", version, "request")
    partitions = tuple(
        m.PartitionProduceData(index=index, records=records)
        for index, records in [(3, b"batch of three"), (70_000, None)]
    )
    return encoded(
        m.ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout=timedelta(milliseconds=1500),
            topic_data=(
                m.TopicProduceData(
                    **topic_key(version, ids_from=13), partition_data=partitions
                ),
            ),
        )
    )


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_produce_requests_are_read(version: int) -> None:
    request = decode_produce_request(version, memoryview(produce_request(version)))
    assert (request.transactional_id, request.acks, request.timeout_ms) == (None, -1, 1500)
    [(ref, partitions)] = request.topics
    assert ref == (TOPIC_ID if version >= 13 else "orders.v1")
    assert [(index, batch and bytes(batch)) for index, batch in partitions] == [
        (3, b"batch of three"),
        (70_000, None),
    ]


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_produce_responses_are_understood(version: int) -> None:
    ref = TOPIC_ID if version >= 13 else "orders.v1"
    results = [
        ProducedResult(3, 0, 1_234_567_890_123, 1_700_000_000_000, 17, None),
        ProducedResult(4, 10, -1, -1, -1, "a batch of 9 bytes is above 8"),
    ]
    m = schema("produce", version, "response")
    response = decoded(m.ProduceResponse, encode_produce_response(version, [(ref, results)]))
    [topic] = response.responses
    good, bad = topic.partition_responses
    assert (topic.topic_id if version >= 13 else topic.name) == ref
    assert (good.index, good.error_code, good.base_offset) == (3, 0, 1_234_567_890_123)
    assert (bad.index, bad.error_code, bad.base_offset) == (4, 10, -1)
    if version >= 5:
        assert (good.log_start_offset, bad.log_start_offset) == (17, -1)
    if version >= 8:
        assert good.error_message is None
        assert bad.error_message == "a batch of 9 bytes is above 8"


def fetch_request(version: int) -> bytes:
    m = schema("fetch", version, "request")
    optional: dict[str, dict[str, Any]] = {"partition": {}, "request": {}}
    if version >= 5:
        optional["partition"]["log_start_offset"] = -1
    if version >= 9:
        optional["partition"]["current_leader_epoch"] = 6
    if version >= 12:
        optional["partition"]["last_fetched_epoch"] = 5
    if version >= 7:
        forgotten = m.ForgottenTopic(
            **({"topic_id": TOPIC_ID} if version >= 13 else {"topic": "gone"}),
            partitions=(1, 2),
        )
        optional["request"] = {
            "session_id": 77, "session_epoch": 8, "forgotten_topics_data": (forgotten,),
        }  # fmt: skip
    if version >= 11:
        optional["request"]["rack_id"] = "rack 1"
    if version < 15:
        optional["request"]["replica_id"] = -1
    topic = m.FetchTopic(
        **({"topic_id": TOPIC_ID} if version >= 13 else {"topic": "orders.v1"}),
        partitions=tuple(
            m.FetchPartition(
                partition=index,
                fetch_offset=offset,
                partition_max_bytes=bytes_max,
                **optional["partition"],
            )
            for index, offset, bytes_max in [(1, 2**40, 1024), (2, 9, 2048)]
        ),
    )
    return encoded(
        m.FetchRequest(
            max_wait=timedelta(milliseconds=500),
            min_bytes=11,
            max_bytes=2**30,
            isolation_level=1,
            topics=(topic,),
            **optional["request"],
        )
    )


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_fetch_requests_are_read(version: int) -> None:
    request = decode_fetch_request(version, memoryview(fetch_request(version)))
    epoch = 6 if version >= 9 else -1
    assert request[:4] == (500, 11, 2**30, 1)
    assert (request.session_id, request.session_epoch) == ((77, 8) if version >= 7 else (0, -1))
    [(ref, partitions)] = request.topics
    assert ref == (TOPIC_ID if version >= 13 else "orders.v1")
    assert partitions == [
        FetchPartition(1, epoch, 2**40, 1024),
        FetchPartition(2, epoch, 9, 2048),
    ]


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_fetch_responses_are_understood(version: int) -> None:
    ref = TOPIC_ID if version >= 13 else "orders.v1"
    results = [
        FetchResult(1, 0, 2**41, 2**40, 5, [memoryview(b"first "), b"second"]),
        FetchResult(2, 1, 30, 25, 20, ()),
        FetchResult(3, 0, 40, 40, 21, [b"x" * 300]),
        FetchResult(4, 0, 50, 45, 22, [b"y" * 200], None, ()),
        FetchResult(5, 0, 60, 55, 23, [b"z"], None, [AbortedTransaction(7, 2**40, 2**41)] * 2),
    ]
    m = schema("fetch", version, "response")
    data = b"".join(encode_fetch_response(version, [(ref, results)]))
    [topic] = decoded(m.FetchResponse, data).responses
    assert (topic.topic_id if version >= 13 else topic.topic) == ref
    seen = [
        (
            p.partition_index,
            p.error_code,
            p.high_watermark,
            p.last_stable_offset,
            p.records or b"",
        )
        for p in topic.partitions
    ]
    assert seen == [
        (1, 0, 2**41, 2**40, b"first second"),
        (2, 1, 30, 25, b""),
        (3, 0, 40, 40, b"x" * 300),
        (4, 0, 50, 45, b"y" * 200),
        (5, 0, 60, 55, b"z"),
    ]
    assert [
        p.aborted_transactions
        and [(one.producer_id, one.first_offset) for one in p.aborted_transactions]
        for p in topic.partitions
    ] == [None, None, None, (), [(7, 2**40)] * 2]
    if version >= 5:
        assert [p.log_start_offset for p in topic.partitions] == [5, 20, 21, 22, 23]


@pytest.mark.parametrize("version", APIS[18].versions)
def test_api_versions_responses_are_understood(version: int) -> None:
    m = schema("api_versions", version, "response")
    data = encode_api_versions_response(
        version, 35, [(0, 3, 13), (18, 0, 4)], {"group.version": 1}
    )
    response = decoded(m.ApiVersionsResponse, data)
    assert response.error_code == 35
    assert [(k.api_key, k.min_version, k.max_version) for k in response.api_keys] == [
        (0, 3, 13),
        (18, 0, 4),
    ]


def test_a_client_id_may_be_null_or_empty() -> None:
    for client_id, size in [(b"", b"\xff\xff"), (b"", b"\x00\x00"), (b"me", b"\x00\x02")]:
        frame = memoryview(b"\x00\x03\x00\x01\x00\x00\x00\x09" + size + client_id + b"body")
        header = decode_request_header(frame, lambda _key, _version: False)
        assert header[:4] == (3, 1, 9, client_id.decode())
        assert bytes(frame[header.body_at :]) == b"body"


REQUESTS = [(decode_produce_request, v, produce_request(v)) for v in PRODUCE_VERSIONS] + [
    (decode_fetch_request, v, fetch_request(v)) for v in FETCH_VERSIONS
]


@settings(max_examples=examples(300))
@given(st.sampled_from(REQUESTS), st.data())
def test_garbled_requests_are_the_peers_fault(
    request: tuple[Any, int, bytes], data: st.DataObject
) -> None:
    decode, version, good = request
    garbled = bytearray(good[: data.draw(st.integers(0, len(good)))])
    for at in data.draw(st.lists(st.integers(0, max(len(garbled) - 1, 0)), max_size=4)):
        if garbled:
            garbled[at] = data.draw(st.integers(0, 255))
    with suppress(PeerError):
        decode(version, memoryview(garbled))
