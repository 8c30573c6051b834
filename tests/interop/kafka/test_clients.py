"""Stock Kafka clients, unmodified, work as with Apache Kafka."""

import pytest

from gateway.model import COMPRESSION_MASK
from tests.interop.kafka.clients import CONFLUENT, KCAT, Client, Member, with_abilities_of
from tests.interop.kafka.conftest import ALL_CLIENTS
from tests.interop.kafka.programs.protocol import Message
from tests.support.kafka_wire import Connection, batches_of
from tests.support.topics import create_topic, fresh_name
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop

COMPRESSIONS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
TIME_MS = 1_700_000_000_000
PARTITIONS = 6
REBALANCED_S_MAX = 300  # three JVMs start at once, on a machine that has other work

ADMIN_STEPS = {
    "created": 0,
    "created again": 36,  # TOPIC_ALREADY_EXISTS
    "bad config": 40,  # INVALID_CONFIG
    "partitions": 2,
    "configs": ["86400000", "2000000"],
    "more partitions": 4,
    "committed": 7,
    "group state": "empty",
    "group listed": True,
    "group deleted": 0,
    "group listed after": False,
    "low watermark": 4,
    "bounds": [4, 10],
    "deleted": 0,
    "deleted again": 3,  # UNKNOWN_TOPIC_OR_PARTITION
}
ADMIN_CLIENTS = [
    param for param in ALL_CLIENTS if param.values[0] is not KCAT
]  # has no such call
NO_CALL_FOR = {"aiokafka": {"group deleted", "group listed after"}}


def messages(count: int, client: Client, *, partitions: int = 1) -> list[Message]:
    """Return records that differ in all writable parts: null, empty, binary, long."""
    keys = [b"key", b"", bytes(range(256))]
    values = [b"a text that repeats, repeats, repeats", None, b"", bytes(range(256)) * 8]
    headers = [(), (("h", b"1"), ("h", b"2")), (("null", None), ("empty", b"")), ()]
    if not client.carries.null_and_empty:
        keys, values = [b"key"], [b"a text that repeats, repeats, repeats"]
    return [
        with_abilities_of(
            Message(
                value=values[n % len(values)],
                key=None if n % 4 == 2 else keys[n // 4 % len(keys)],
                headers=headers[n // 2 % len(headers)],
                timestamp_ms=TIME_MS + n,
                partition=n % partitions,
            ),
            client.carries,
        )
        for n in range(count)
    ]


def by_partition(found: list[Message], *, with_times: bool = True) -> dict[int, list[object]]:
    """Return the messages of each partition, in order."""
    rows: dict[int, list[object]] = {}
    for message in found:
        seen = (message.key, message.value, message.headers)
        row = (*seen, message.timestamp_ms) if with_times else seen
        rows.setdefault(message.partition or 0, []).append(row)
    return rows


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_records_come_back_and_their_compression_is_kept(
    client: Client, bootstrap: str, compression: str
) -> None:
    topic = create_topic(bootstrap, partitions=2)
    sent = messages(200, client, partitions=2)

    client.produce(bootstrap, topic, sent, compression=compression)
    found = client.consume(bootstrap, topic, count=200, partitions=2)

    with_times = client.carries.headers_and_timestamps
    assert by_partition(found, with_times=with_times) == by_partition(
        sent, with_times=with_times
    )
    with Connection(int(bootstrap.rsplit(":", 1)[1])) as connection:
        _code, _end, stored = connection.fetch(topic, 0, 0)
    codecs = {header.attributes & COMPRESSION_MASK for header in batches_of(stored)}
    assert COMPRESSIONS[compression] in codecs
    assert codecs <= {COMPRESSIONS[compression], 0}  # librdkafka leaves what would not shrink


def test_an_idempotent_producer_writes_each_record_once(client: Client, bootstrap: str) -> None:
    topic = create_topic(bootstrap)
    sent = [Message(b"%d" % n, key=b"k", partition=0) for n in range(500)]

    places = client.produce(bootstrap, topic, sent, idempotent=True)

    if client is not KCAT:  # it does not tell
        assert sorted(offset for _partition, offset in places) == list(range(500))
    found = CONFLUENT.consume(bootstrap, topic, count=500)
    assert [message.value for message in found] == [message.value for message in sent]
    with Connection(int(bootstrap.rsplit(":", 1)[1])) as connection:
        _code, end, stored = connection.fetch(topic, 0, 0)
    assert end == 500
    assert all(header.is_idempotent for header in batches_of(stored))


def test_a_reader_starts_at_a_time(client: Client, bootstrap: str) -> None:
    topic = create_topic(bootstrap)
    for second in range(5):  # a batch each
        record = Message(b"%d" % second, partition=0, timestamp_ms=TIME_MS + second * 1000)
        CONFLUENT.produce(bootstrap, topic, [record])

    found = client.consume(bootstrap, topic, count=2, from_ms=TIME_MS + 2500)

    assert [message.value for message in found] == [b"3", b"4"]


def test_a_reader_starts_at_a_time_within_a_batch(client: Client, bootstrap: str) -> None:
    topic = create_topic(bootstrap)
    batch = [
        Message(b"%d" % second, partition=0, timestamp_ms=TIME_MS + second * 1000)
        for second in range(5)
    ]
    CONFLUENT.produce(bootstrap, topic, batch, compression="zstd")

    found = client.consume(bootstrap, topic, count=1, from_ms=TIME_MS + 3000)

    assert [message.value for message in found] == [b"3"]


def test_a_group_goes_on_when_a_member_dies_and_returns(client: Client, bootstrap: str) -> None:
    topic = create_topic(bootstrap, partitions=PARTITIONS)
    group = fresh_name("g")
    members = [client.member(bootstrap, topic, group) for _ in range(3)]
    gone: list[Member] = []
    try:
        _expect_shares(members, [2, 2, 2])
        _produce_and_expect(bootstrap, topic, members, b"three")

        gone.append(members.pop())
        gone[0].program.kill()
        _expect_shares(members, [3, 3])
        _produce_and_expect(bootstrap, topic, members, b"two")

        members.append(client.member(bootstrap, topic, group))
        _expect_shares(members, [2, 2, 2])
        _produce_and_expect(bootstrap, topic, members, b"three again")
    finally:
        for member in members:
            member.program.kill()


def _expect_shares(members: list[Member], shares: list[int]) -> None:
    def is_shared() -> bool:
        for member in members:
            assert member.program.is_running, member.program.tail()
        held = [member.assigned for member in members]
        return (
            sorted(partition for share in held for partition in share)
            == list(range(PARTITIONS))
            and sorted(map(len, held)) == shares
        )

    try:
        wait_until(is_shared, within_s=REBALANCED_S_MAX, what=f"shares of {shares}")
    except TimeoutError:
        told = "\n".join(f"{member.assigned} {member.program.tail()}" for member in members)
        pytest.fail(f"shares of {shares} expected; the members say:\n{told}", pytrace=False)


def _produce_and_expect(bootstrap: str, topic: str, members: list[Member], text: bytes) -> None:
    sent = [
        Message(b"%s %d" % (text, n), key=b"k", partition=n % PARTITIONS) for n in range(30)
    ]
    CONFLUENT.produce(bootstrap, topic, sent)
    expected = {message.value for message in sent}
    wait_until(
        lambda: expected <= set().union(*(member.values for member in members)),
        within_s=REBALANCED_S_MAX,
        what=f"all of {text!r} is consumed",
    )


@pytest.mark.parametrize("client", ADMIN_CLIENTS)
def test_admin_round_trip(client: Client, bootstrap: str) -> None:
    seen = client.admin(bootstrap, fresh_name(), fresh_name("g"))

    lacks = NO_CALL_FOR.get(client.name, set())
    assert seen == {step: what for step, what in ADMIN_STEPS.items() if step not in lacks}
