"""Compressed batches with a corrupt payload, and the kinds of topics that refuse them."""

from pathlib import Path

import pytest

from adapters.kafka.errors import ErrorCode
from gateway.model import HEADER_BYTES, TopicName
from tests.adapters.kafka.running_adapter import running
from tests.support.batches import patched, sample_batch
from tests.support.kafka_wire import PRODUCE, produce_body, produce_errors, request

ORDERS = TopicName("default", "orders")
CODECS = [1, 2, 3, 4]
ATTRIBUTES_AT = 21
MIB = 1 << 20


def garbled(compression: int, at: int) -> bytearray:
    """Return a batch with a valid CRC, and 9 changed bytes in its payload from ``at`` on."""
    batch = sample_batch(count=20, value=b"0123456789" * 9, compression=compression)
    start = HEADER_BYTES + at if at >= 0 else len(batch) + at
    batch[start : start + 9] = bytes(255 - byte for byte in batch[start : start + 9])
    return patched(batch, ATTRIBUTES_AT, ">h", compression)


async def answered(tmp_path: Path, batch: bytearray, **configs: str) -> int:
    async with running(tmp_path) as live:
        if configs:
            named = {name.replace("_", "."): value for name, value in configs.items()}
            await live.kernel.topics.alter_configs(ORDERS, named)
        client = await live.client()
        client.send(request(PRODUCE, 7, 1, produce_body([("orders", 0, bytes(batch))])))
        [(code, _)] = produce_errors((await client.answer())[1])
    return code


@pytest.mark.parametrize("compression", CODECS)
async def test_a_garbled_head_is_refused_everywhere(tmp_path: Path, compression: int) -> None:
    code = await answered(tmp_path, garbled(compression, 0))
    assert code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("compression", CODECS)
@pytest.mark.parametrize(
    "configs",
    [
        {"cleanup_policy": "compact"},
        {"cleanup_policy": "queue"},
        {"delay_enable": "true"},
        {"records_validate": "full"},
    ],
)
async def test_what_cannot_be_decoded_is_refused_where_it_is_looked_into(
    tmp_path: Path, compression: int, configs: dict[str, str]
) -> None:
    code = await answered(tmp_path, garbled(compression, -14), **configs)
    assert code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("compression", CODECS)
async def test_a_plain_topic_takes_what_begins_well(tmp_path: Path, compression: int) -> None:
    assert await answered(tmp_path, garbled(compression, -14)) == ErrorCode.NONE


@pytest.mark.parametrize("compression", [0, *CODECS])
@pytest.mark.parametrize("policy", ["compact", "queue", "delete"])
async def test_what_is_well_is_taken(tmp_path: Path, compression: int, policy: str) -> None:
    batch = sample_batch(count=20, compression=compression)
    configs = {"cleanup_policy": policy, "records_validate": "full"}
    assert await answered(tmp_path, batch, **configs) == ErrorCode.NONE


async def test_records_that_are_garbled_are_refused_uncompressed_too(tmp_path: Path) -> None:
    code = await answered(tmp_path, garbled(0, 0), records_validate="full")
    assert code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("policy", ["compact", "queue"])
async def test_what_becomes_too_large_is_too_large(tmp_path: Path, policy: str) -> None:
    huge = sample_batch(count=20, value=bytes(MIB), compression=4)
    code = await answered(tmp_path, huge, cleanup_policy=policy)
    assert code == ErrorCode.MESSAGE_TOO_LARGE


async def test_a_compacted_topic_follows_its_max_message_bytes(tmp_path: Path) -> None:
    huge = sample_batch(count=20, value=bytes(MIB), compression=4)
    configs = {"cleanup_policy": "compact", "max_message_bytes": str(32 * MIB)}
    assert await answered(tmp_path, huge, **configs) == ErrorCode.NONE
