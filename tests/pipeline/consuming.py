"""Reading of topics whose number of records is known."""

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

from tests.support.topics import fresh_name


def consume_all(bootstrap: str, topic: str, partitions: int, count: int) -> list[Message]:
    """Return all messages of a topic; fails unless there are ``count``."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": fresh_name("g")})
    consumer.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for n in range(partitions)])
    found: list[Message] = []
    while len(found) < count:
        some = consumer.consume(count, 20)
        assert some, f"{len(found)} of {count} came"
        found += some
    assert not consumer.consume(1, 0.5), "more came than were to be there"
    consumer.close()
    return found
