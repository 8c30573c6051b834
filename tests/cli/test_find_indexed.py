"""``headgate topics find`` in a topic with ``key.index=true``: little is read."""

import os
from pathlib import Path

from confluent_kafka import Producer

from gateway.cli.settings import client_of, settings_of
from tests.cli.conftest import Run
from tests.support.gateway import Gateway
from tests.support.topics import create_topic
from tests.support.waiting import wait_until

SETTINGS = {
    "storage.segment_bytes": 1 << 20,
    "storage.reserve_bytes": 0,
    "storage.settle_after_bytes": 0,
    "broker.producer_snapshot_bytes": 1 << 20,
}


def test_with_an_index_little_is_read(run: Run, tmp_path: Path) -> None:
    with Gateway(tmp_path, SETTINGS) as gateway:
        topic = create_topic(gateway.bootstrap, configs={"key.index": "true"})
        # A batch must fit a segment, which is small here.
        producer = Producer({"bootstrap.servers": gateway.bootstrap, "batch.size": 100_000})
        for n in range(8_000):
            producer.produce(topic, os.urandom(1_000), b"key-%d" % n)
            producer.poll(0)
        assert producer.flush(60) == 0
        client = client_of(settings_of(None, [f"node.data_dir={tmp_path}"]))

        def little_is_read() -> bool:
            step = client.send("POST", "topics", topic, "find", body={"key": "key-7"})
            assert [match["offset"] for match in step["matches"]] == [7]
            assert step["next"] is None
            return bool(step["read_bytes"] < 6_000_000)

        # What came last is indexed last: until then all of that is read.
        wait_until(little_is_read, within_s=60, what="an index of what was written")
        assert gateway.metric("headgate_key_index_files_total") > 0
        shown = run("topics", "find", topic, "-k", "key-4321", "--json",
                    "--set", f"node.data_dir={tmp_path}")  # fmt: skip
        assert shown.status == 0, shown.err
        assert [match["offset"] for match in shown.json] == [4321]
