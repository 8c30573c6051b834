"""Client quotas in the metadata store."""

from pathlib import Path

from features.quota.model import DEFAULT, Entity, QuotaKey
from gateway.metadata.sql import SqlMetadata

PRODUCED = QuotaKey.PRODUCER_BYTE_RATE
CONSUMED = QuotaKey.CONSUMER_BYTE_RATE


async def test_quotas_are_there_after_a_restart(
    metadata: SqlMetadata, url: str, tmp_path: Path
) -> None:
    named, by_default = Entity("*", "=a"), Entity(DEFAULT, "*")
    await metadata.change_quotas(named, {PRODUCED: 1.0, CONSUMED: 2.5})
    await metadata.change_quotas(by_default, {PRODUCED: 3.0})
    await metadata.change_quotas(Entity(ip="::1"), {QuotaKey.CONNECTION_CREATION_RATE: 4.0})
    await metadata.close()
    again = SqlMetadata(url, data_dir=tmp_path)
    await again.open()
    assert await again.quotas() == {
        named: {PRODUCED: 1.0, CONSUMED: 2.5},
        by_default: {PRODUCED: 3.0},
        Entity(ip="::1"): {QuotaKey.CONNECTION_CREATION_RATE: 4.0},
    }
    await again.close()


async def test_a_quota_is_replaced_and_removed_by_itself(metadata: SqlMetadata) -> None:
    ann, client = Entity("ann"), Entity(None, "ann")
    await metadata.change_quotas(ann, {PRODUCED: 1.0, CONSUMED: 2.0})
    await metadata.change_quotas(client, {PRODUCED: 7.0})
    await metadata.change_quotas(ann, {PRODUCED: 5.0, CONSUMED: None})
    assert await metadata.quotas() == {ann: {PRODUCED: 5.0}, client: {PRODUCED: 7.0}}
