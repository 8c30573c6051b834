"""The new consumer protocol (KIP-848): heartbeats as Apache Kafka answers them, stock clients."""

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupType, Producer
from confluent_kafka.admin import AdminClient

from tests.interop.kafka.test_java_tools import rows, tool
from tests.support.consumer_protocol import Beat, describe, heartbeat
from tests.support.fetch_sessions import topic_id
from tests.support.gateway import Gateway
from tests.support.kafka_server import KafkaServer
from tests.support.kafka_wire import Connection
from tests.support.topics import create_topic, fresh_name
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.interop]

PARTITIONS: Final = 6
TIMEOUT: Final = timedelta(seconds=45)
READY_S_MAX: Final = 90
DONE_S_MAX: Final = 120
JVM_S_MAX: Final = 400  # JVMs start at once, on a machine that has other work
MESSAGES: Final = 1_000


class Group:
    """One group of one broker; ``seen`` are the answers without what differs by broker."""

    def __init__(self, bootstrap: str, connection: Connection, name: str) -> None:
        self.topic = create_topic(bootstrap, name=name, partitions=PARTITIONS)
        self.uuid = topic_id(bootstrap, self.topic)
        self.connection = connection
        self.name = name
        self.seen: list[Any] = []
        self.owned: dict[str, Sequence[int]] = {}

    def join(self, member_id: str, **fields: Any) -> Beat:
        """Join with the topic, or what is given."""
        defaults: dict[str, Any] = {
            "names": (self.topic,), "owned": {}, "rebalance_timeout": TIMEOUT
        }  # fmt: skip
        return self.beat(member_id, 0, **(defaults | fields))

    def beat(
        self, member_id: str, epoch: int, *, says_owned: bool = False, **fields: Any
    ) -> Beat:
        """Send a heartbeat; ``says_owned``: with the partitions of the last answer."""
        if says_owned:
            fields["owned"] = {self.uuid: self.owned.get(member_id, ())}
        answer = heartbeat(self.connection, self.name, member_id, epoch, **fields)
        if answer.assignment is not None:
            self.owned[member_id] = [number for _, number in sorted(answer.assignment)]
        count = None if answer.assignment is None else len(answer.assignment)
        message = answer.message
        if message is not None:  # RE2 and RE2J say differently what is wrong with a pattern
            message = message.split("is not a valid regular expression")[0]
        self.seen.append((member_id, epoch, answer.error_code, message, answer.epoch, count))
        return answer

    def describe(self) -> None:
        """Note the description of the group."""
        found = describe(self.connection, self.name)
        members = sorted(
            (
                member.member_id,
                member.instance_id,
                member.rack_id,
                member.member_epoch,
                sorted(member.subscribed_topic_names),
                member.subscribed_topic_regex,
                _sizes(member.assignment),
                _sizes(member.target_assignment),
            )
            for member in found.members
        )
        self.seen.append(
            (int(found.error_code), found.error_message, found.group_state, found.group_epoch,
             found.assignment_epoch, found.assignor_name, members)
        )  # fmt: skip


def _sizes(assignment: Any) -> list[tuple[str, int]]:
    return [(topic.topic_name, len(topic.partitions)) for topic in assignment.topic_partitions]


def comings_and_goings(group: Group) -> None:
    """Two members come, share, and go."""
    group.join("a")
    group.describe()
    group.beat("a", 1)
    group.beat("a", 1, says_owned=True)
    group.join("b")
    group.describe()
    group.beat("a", 1)
    group.beat("b", 2)
    group.beat("a", 1)
    group.describe()
    group.beat("a", 1, says_owned=True)
    group.beat("a", 2)
    group.beat("b", 2)
    group.beat("b", 2, says_owned=True)
    group.describe()
    group.beat("a", -1)
    group.beat("b", 2)
    group.beat("b", 3)
    group.beat("b", -1)
    group.describe()


def three_members(group: Group) -> None:
    """A third member waits for two others."""
    group.join("a")
    group.join("b")
    group.join("c")
    for _ in range(2):
        for member_id, epoch in (("a", 1), ("b", 2), ("c", 3)):
            group.beat(member_id, epoch)
    group.beat("a", 1, says_owned=True)
    for member_id in "abc":
        group.beat(member_id, 3, says_owned=True)
    group.describe()


def epochs(group: Group) -> None:
    """Wrong epochs, unknown members, lost answers."""
    group.beat("a", 1)
    group.beat("a", -1)
    group.join("a")
    group.beat("a", 7)
    group.beat("stranger", 1)
    group.beat("stranger", -1)
    group.join("b")
    group.beat("a", 1, says_owned=False)
    group.beat("a", 1, owned={group.uuid: group.owned["a"]})
    group.beat("a", 2)
    group.beat("a", 1)
    group.beat("a", 1, owned={group.uuid: group.owned["a"]})
    group.beat("a", 1, owned={group.uuid: [9]})


def joining_again(group: Group) -> None:
    """A member joins again, with its answer lost or after it was fenced."""
    group.join("a")
    group.join("a")
    group.beat("a", 1)
    group.join("b")
    group.beat("a", 1)
    group.beat("a", 1, says_owned=True)
    group.join("a")
    group.beat("a", 2)


def bad_requests(group: Group) -> None:
    """Requests that contradict themselves."""
    group.join("")
    group.beat("a", -3)
    group.beat("a", -2)
    group.join("a", rebalance_timeout=timedelta(milliseconds=-1))
    group.join("a", owned=None)
    group.join("a", owned={group.uuid: [1]})
    group.join("a", names=None)
    group.join("a", instance_id="")
    group.join("a", rack_id="")
    group.join("a", assignor="best")
    group.join("a", names=None, regex="(")
    group.join("a", version=0)


def static_members(group: Group) -> None:
    """Static members leave for a while, come back, and are fenced."""
    group.join("a", instance_id="one")
    group.join("b", instance_id="two")
    group.beat("a", 1, instance_id="one")
    group.beat("a", 1, instance_id="one", says_owned=True)
    group.beat("b", 2, instance_id="two")
    group.join("a2", instance_id="one")
    group.beat("a", -2, instance_id="one")
    group.describe()
    group.beat("b", 2, instance_id="two")
    group.join("a2", instance_id="one")
    group.beat("a", 2, instance_id="one")
    group.beat("a2", 2, instance_id="one")
    group.beat("x", 1, instance_id="three")
    group.beat("a2", -1, instance_id="one")
    group.beat("b", 2, instance_id="two")


def subscriptions(group: Group) -> None:
    """Subscriptions that change, and topics that are not there."""
    group.join("a", names=("nosuch",))
    group.beat("a", 1, names=("nosuch", group.topic))
    group.describe()
    group.beat("a", 2, names=(group.topic, "nosuch"))
    group.beat("a", 2, assignor="range")
    group.beat("a", 2, names=("nosuch",))
    group.beat("a", 3)
    group.beat("a", 3, says_owned=True)
    group.describe()


SCRIPTS: Final[Sequence[Callable[[Group], None]]] = [
    comings_and_goings,
    three_members,
    epochs,
    joining_again,
    bad_requests,
    static_members,
    subscriptions,
]


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Gateway | KafkaServer]]:
    """Return a gateway and Apache Kafka."""
    folder = tmp_path_factory.mktemp("groups")
    with Gateway(folder / "headgate") as gateway, KafkaServer(folder / "kafka") as kafka:
        yield [gateway, kafka]


@pytest.mark.java
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_a_script_of_heartbeats_has_the_same_answers(
    brokers: list[Gateway | KafkaServer], script: Callable[[Group], None]
) -> None:
    ours, theirs = (_answers(broker, script) for broker in brokers)
    assert ours == theirs


def _answers(broker: Gateway | KafkaServer, script: Callable[[Group], None]) -> list[Any]:
    with Connection(broker.kafka_port) as connection:
        group = Group(broker.bootstrap, connection, script.__name__)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.describe_consumer_groups([group.name])[group.name].exception(READY_S_MAX)
        wait_until(
            lambda: _is_served(connection), within_s=READY_S_MAX, what="groups are served"
        )
        wait_until(lambda: _is_known(group), within_s=READY_S_MAX, what="its topic is known")
        script(group)
    return group.seen


def _is_known(group: Group) -> bool:
    """Return whether the coordinator knows the partitions of the topic."""
    place = group.connection, f"{group.name}-probe", "p"
    joined = heartbeat(*place, 0, names=(group.topic,), owned={}, rebalance_timeout=TIMEOUT)
    heartbeat(*place, -1)
    return joined.assignment is not None and len(joined.assignment) == PARTITIONS


def _is_served(connection: Connection) -> bool:
    """Return whether the coordinator has loaded; Kafka makes it when it is first looked for."""
    return heartbeat(connection, "probe", "a", -1).error_code not in {14, 15, 16}


def consumer_of(bootstrap: str, group: str, **settings: Any) -> Consumer:
    """Return librdkafka's consumer of the new protocol."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            **settings,
        }
    )


def poll_until(condition: Callable[[], bool], consumers: Sequence[Consumer], what: str) -> None:
    """Poll consumers until a condition holds: librdkafka's only rebalance while they do."""

    def polled() -> bool:
        for consumer in consumers:
            message = consumer.poll(0.05)
            assert message is None or message.error() is None
        return condition()

    wait_until(polled, within_s=DONE_S_MAX, what=what)


def numbers(consumer: Consumer) -> set[int]:
    """Return the partitions that a consumer reads."""
    return {assigned.partition for assigned in consumer.assignment()}


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Return a gateway whose members send heartbeats every 200 ms."""
    settings = {"groups.consumer_heartbeat_interval_ms": 200}
    with Gateway(tmp_path_factory.mktemp("quick") / "data", settings) as gateway:
        yield gateway


def test_librdkafka_shares_hands_over_and_commits(quick: Gateway) -> None:
    topic = create_topic(quick.bootstrap, partitions=4)
    group = fresh_name("g")
    producer = Producer({"bootstrap.servers": quick.bootstrap})
    for number in range(40):
        producer.produce(topic, str(number).encode(), partition=number % 4)
    producer.flush()
    admin = AdminClient({"bootstrap.servers": quick.bootstrap})

    first, second = consumer_of(quick.bootstrap, group), consumer_of(quick.bootstrap, group)
    first.subscribe([topic])
    read: set[bytes] = set()
    while len(read) < 40:
        message = first.poll(DONE_S_MAX)
        assert message is not None
        assert message.error() is None
        read.add(message.value())
    first.commit(asynchronous=False)
    second.subscribe([f"^{topic}"])  # a pattern, which the broker matches
    both = [first, second]
    poll_until(lambda: len(numbers(first)) == len(numbers(second)) == 2, both, "both read two")
    assert numbers(first) | numbers(second) == set(range(4))
    described = admin.describe_consumer_groups([group])[group].result(DONE_S_MAX)
    assert described.type is ConsumerGroupType.CONSUMER
    assert len(described.members) == 2

    first.close()
    poll_until(lambda: len(numbers(second)) == 4, [second], "the other takes over")
    committed = second.committed(second.assignment(), DONE_S_MAX)
    assert [position.offset for position in committed] == [10] * 4
    poll_until(
        lambda: (
            admin.describe_consumer_groups([group])[group].result(DONE_S_MAX).state
            is ConsumerGroupState.STABLE
        ),
        [second],
        "the group is stable",
    )
    listed = admin.list_consumer_groups().result(DONE_S_MAX).valid
    assert [one.type for one in listed if one.group_id == group] == [ConsumerGroupType.CONSUMER]
    second.close()


def test_members_go_on_over_a_killed_node(tmp_path: Any) -> None:
    settings = {"groups.consumer_heartbeat_interval_ms": 200}
    with Gateway(tmp_path / "data", settings) as gateway:
        topic = create_topic(gateway.bootstrap, partitions=4)
        group = fresh_name("g")
        both = [consumer_of(gateway.bootstrap, group) for _ in range(2)]
        for consumer in both:
            consumer.subscribe([topic])
        poll_until(lambda: all(len(numbers(one)) == 2 for one in both), both, "two each")
        before = [numbers(one) for one in both]
        gateway.kill()
        gateway.restart()
        producer = Producer({"bootstrap.servers": gateway.bootstrap})
        for number in range(4):
            producer.produce(topic, b"after", partition=number)
        producer.flush()
        read: list[tuple[int, int]] = []

        def all_read() -> bool:
            for index, consumer in enumerate(both):
                message = consumer.poll(0.05)
                if message is not None and message.error() is None:
                    read.append((index, message.partition()))
            return len(read) == 4

        wait_until(all_read, within_s=DONE_S_MAX, what="all partitions are read on")
        assert sorted(read) == sorted(
            (index, number) for index, those in enumerate(before) for number in those
        )
        for consumer in both:
            consumer.close()


@pytest.mark.java
def test_javas_consumers_of_the_new_protocol_agree(quick: Gateway) -> None:
    topic = create_topic(quick.bootstrap, partitions=6)
    place = ["--bootstrap-server", quick.bootstrap, "--topic", topic]
    producer = tool("VerifiableProducer", *place, "--max-messages", str(MESSAGES))
    consumers = [
        tool("VerifiableConsumer", *place, "--group-id", "java", "--verbose",
             "--group-protocol", "consumer", "--reset-policy", "earliest")
        for _ in range(2)
    ]  # fmt: skip
    try:
        producer.finish(within_s=JVM_S_MAX)

        def consumed() -> set[str]:
            found = [rows(consumer, "record_data") for consumer in consumers]
            return {row["value"] for each in found for row in each}

        wanted = {str(number) for number in range(MESSAGES)}
        wait_until(lambda: consumed() >= wanted, within_s=JVM_S_MAX, what="all is consumed")
        commits = [row for each in consumers for row in rows(each, "offsets_committed")]
        assert commits
        assert all(row["success"] for row in commits)
        with Connection(quick.kafka_port) as connection:
            assert describe(connection, "java").group_epoch >= 1
    finally:
        for consumer in consumers:
            consumer.kill()
