"""Policies take effect on queues and exchanges that are there, and on those to come."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.adapters.amqp.management.conftest import settings, target_of
from tests.support.amqp_management import ManagementClient
from tests.support.amqp_target import AmqpTarget
from tests.support.gateway import Gateway
from tests.support.waiting import wait_until

ALL = {"apply-to": "all", "priority": 0}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AmqpTarget]:
    with Gateway(tmp_path_factory.mktemp("policies") / "data", settings()) as gateway:
        yield target_of(gateway)


@pytest.fixture
def api(target: AmqpTarget) -> ManagementClient:
    return ManagementClient(target.management_port)


@pytest.fixture
def channel(target: AmqpTarget) -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(target.url))
    yield connection.channel()
    connection.close()


@contextlib.contextmanager
def held(api: ManagementClient, path: str, **body: object) -> Iterator[None]:
    """Set a policy until the block ends."""
    api.put(path, ALL | body)
    yield
    api.delete(path)


def ready(channel: BlockingChannel, queue: str) -> int:
    """Return the number of ready messages."""
    found = channel.queue_declare(queue, passive=True)
    return int(found.method.message_count)


def becomes(channel: BlockingChannel, queue: str, count: int) -> None:
    """Wait until a queue has so many ready messages."""
    wait_until(
        lambda: ready(channel, queue) == count,
        within_s=60,
        what=f"{queue} has {count} messages",
        every_s=0.05,
    )


def test_a_length_limit_takes_effect_at_once_and_ends(
    api: ManagementClient, channel: BlockingChannel
) -> None:
    channel.confirm_delivery()
    channel.queue_declare("cut", durable=True, arguments={"x-max-length": 8})
    for number in range(6):
        channel.basic_publish("", "cut", b"%d" % number)
    with held(api, "policies/%2F/cut", pattern="^cut$", definition={"max-length": 4}):
        becomes(channel, "cut", 4)
        with held(
            api, "operator-policies/%2F/cut", pattern="^cut", definition={"max-length": 2}
        ):
            becomes(channel, "cut", 2)
        for number in range(6):
            channel.basic_publish("", "cut", b"%d" % number)
        becomes(channel, "cut", 4)  # that of the policy again
    for number in range(9):
        channel.basic_publish("", "cut", b"%d" % number)
    becomes(channel, "cut", 8)  # that of the argument
    channel.queue_declare("cut", durable=True, arguments={"x-max-length": 8})  # as it was made


def test_a_new_queue_has_the_policies_of_its_name(
    api: ManagementClient, channel: BlockingChannel
) -> None:
    channel.confirm_delivery()
    channel.queue_declare("letters", durable=True)
    definition = {
        "max-length": 1,
        "dead-letter-exchange": "",
        "dead-letter-routing-key": "letters",
    }
    with held(api, "policies/%2F/new", pattern="^new-", definition=definition):
        for queue, durable in (("new-durable", True), ("new-transient", False)):
            channel.queue_declare(queue, durable=durable)
            channel.basic_publish("", queue, b"first")
            channel.basic_publish("", queue, b"second")
            becomes(channel, queue, 1)
    becomes(channel, "letters", 2)


def test_a_policy_gives_an_alternate_exchange(
    api: ManagementClient, channel: BlockingChannel
) -> None:
    channel.confirm_delivery()
    channel.queue_declare("strays", durable=True)
    channel.exchange_declare("catch", "fanout", durable=True)
    channel.queue_bind("strays", "catch")
    channel.exchange_declare("narrow", "direct", durable=True)
    definition = {"alternate-exchange": "catch"}
    with held(api, "policies/%2F/ae", pattern="^(narrow|amq.direct)$", definition=definition):
        channel.basic_publish("narrow", "none", b"", mandatory=True)
        channel.basic_publish("amq.direct", "none", b"", mandatory=True)
        channel.exchange_declare("narrow", "direct", durable=True)
        assert api.get("exchanges/%2F/narrow")["policy"] == "ae"
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish("narrow", "none", b"", mandatory=True)
    becomes(channel, "strays", 2)


def test_a_time_to_live_takes_effect_on_messages_that_are_there(
    api: ManagementClient, channel: BlockingChannel
) -> None:
    channel.confirm_delivery()
    channel.queue_declare("aging", durable=True)
    channel.basic_publish("", "aging", b"old")
    with held(api, "policies/%2F/ttl", pattern="^aging$", definition={"message-ttl": 50}):
        becomes(channel, "aging", 0)
        channel.basic_publish("", "aging", b"new")
        becomes(channel, "aging", 0)
    channel.basic_publish("", "aging", b"kept")
    becomes(channel, "aging", 1)


def test_an_unused_queue_expires_by_a_policy(
    api: ManagementClient, channel: BlockingChannel
) -> None:
    channel.queue_declare("unused", durable=True)
    with held(api, "policies/%2F/expires", pattern="^unused$", definition={"expires": 100}):
        wait_until(
            lambda: api.call("GET", "queues/%2F/unused").status == 404,
            within_s=60,
            what="the queue expires",
        )


def test_a_full_queue_refuses_by_a_policy(
    api: ManagementClient, channel: BlockingChannel
) -> None:
    channel.confirm_delivery()
    channel.queue_declare("full", durable=True)
    definition = {"max-length-bytes": 5, "overflow": "reject-publish"}
    with held(api, "policies/%2F/full", pattern="^full$", definition=definition):
        channel.basic_publish("", "full", b"12345")
        with pytest.raises(pika.exceptions.NackError):
            channel.basic_publish("", "full", b"6")
    channel.basic_publish("", "full", b"6")
    becomes(channel, "full", 2)


def test_deliveries_of_a_quorum_queue_are_limited_by_a_policy(
    api: ManagementClient, channel: BlockingChannel
) -> None:
    channel.confirm_delivery()
    channel.queue_declare("tried", durable=True, arguments={"x-queue-type": "quorum"})
    definition = {"delivery-limit": 1}
    with held(api, "policies/%2F/tried", pattern="^tried$", definition=definition):
        channel.basic_publish("", "tried", b"x")
        for _ in range(2):
            method, _, _ = channel.basic_get("tried")
            assert method is not None
            channel.basic_reject(method.delivery_tag, requeue=True)
        becomes(channel, "tried", 0)


def test_policies_outlive_a_restart(tmp_path: Path) -> None:
    for is_first in (True, False):
        with Gateway(tmp_path / "data", settings()) as gateway:
            target = target_of(gateway)
            api = ManagementClient(target.management_port)
            connection = pika.BlockingConnection(pika.URLParameters(target.url))
            channel = connection.channel()
            channel.confirm_delivery()
            if is_first:
                channel.exchange_declare("gone", "fanout", durable=True)
                definition = {"alternate-exchange": "amq.fanout", "max-length": 1}
                api.put("policies/%2F/kept", ALL | {"pattern": "", "definition": definition})
            else:
                channel.queue_declare("after", durable=True)
                channel.queue_bind("after", "amq.fanout")
                channel.basic_publish("gone", "", b"", mandatory=True)
                becomes(channel, "after", 1)
            connection.close()
