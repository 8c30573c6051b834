"""``headgate topics find`` against a running node."""

from kafka import KafkaProducer

from tests.cli.conftest import Run
from tests.support.gateway import Gateway
from tests.support.topics import create_topic


def test_records_are_found_by_key_and_header(run: Run, node: Gateway) -> None:
    where = ("--set", f"node.data_dir={node.data_dir}")
    topic = create_topic(node.bootstrap, partitions=2)
    producer = KafkaProducer(bootstrap_servers=node.bootstrap)
    for n in range(40):
        headers = [("colour", b"red" if n % 2 else b"blue")]
        producer.send(topic, b"value-%d" % n, b"key-%d" % (n % 10), headers, partition=n % 2)
    producer.send(topic, b"\xff\xfe", b"\x00\xff", partition=1)
    producer.flush()
    producer.close()

    by_key = run("topics", "find", topic, "--key", "key-3", "--json", *where)
    assert by_key.status == 0, by_key.err
    assert [match["value"] for match in by_key.json] == [f"value-{n}" for n in (3, 13, 23, 33)]
    assert {match["partition"] for match in by_key.json} == {1}

    blue = run("topics", "find", topic, "-k", "key-3", "--header", "colour=blue", *where)
    assert (blue.status, blue.out) == (0, "")
    assert blue.err.startswith("no record matches; ")

    late = ("--header", "colour=red", "--partition", "1", "--from", "18", "--limit", "1")
    (only,) = run("topics", "find", topic, *late, "--json", *where).json
    assert (only["offset"], only["value"]) == (18, "value-37")

    binary = run("topics", "find", topic, "--key", "0x00ff", *where)
    assert "0xfffe" in binary.out
    none = run("topics", "find", topic, "--key", "key-3", "--from", "2999-01-01", *where)
    assert (none.status, none.out) == (0, "")


def test_wrong_options_are_named(run: Run, node: Gateway) -> None:
    where = ("--set", f"node.data_dir={node.data_dir}")
    topic = create_topic(node.bootstrap, partitions=1)
    nothing = run("topics", "find", topic, *where)
    assert nothing.status == 1
    assert "key or a header" in nothing.err
    for wrong in (["--key", "0xzz"], ["--header", "x"], ["-k", "a", "--from", "soon"]):
        assert run("topics", "find", topic, *wrong, *where).status == 2
