"""A run that sends records again: what it claims, and what it says when it is refused."""

from collections.abc import Iterator, Sequence

import pytest
from confluent_kafka.admin import AdminClient

from gateway.clock import SystemClock
from gateway.errors import RequestError
from pipeline.resend.endpoint import Endpoint, NotSent, Sender
from pipeline.resend.job_state import JobState, RecordPosition, marker
from tests.support.gateway import Gateway
from tests.support.topics import create_topic, fresh_name

HEADER = "headgate.test"


class Broken(Exception):
    """The run ends with an error."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("node") / "data") as running:
        yield running


def state_of(gateway: Gateway, job_id: str, topic: str) -> JobState:
    return JobState(
        Endpoint(gateway.bootstrap),
        job="test",
        job_id=job_id,
        header=HEADER,
        anchor=topic,
        clock=SystemClock(),
    )


def send(gateway: Gateway, topic: str, job_id: str, offset: int) -> None:
    sender = Sender(Endpoint(gateway.bootstrap), in_order=True)
    position = RecordPosition("orders", 0, offset)
    sender.send(
        topic,
        0,
        key=None,
        value=b"x",
        headers=[(HEADER, marker(job_id, position))],
        unix_ms=5,
        place=str(position),
    )
    sender.finish()


def failing_run(
    gateway: Gateway, job_id: str, topic: str, *, partitions: int, sends: Sequence[int] = ()
) -> None:
    with state_of(gateway, job_id, topic) as state:
        state.prepare(topic, partitions, is_new=False)
        assert f"headgate.test.{job_id}" in groups(gateway)
        for offset in sends:
            send(gateway, topic, job_id, offset)
        raise Broken


def groups(gateway: Gateway) -> set[str]:
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    found = admin.list_consumer_groups(request_timeout=30).result(60)
    return {one.group_id for one in found.valid}


def test_a_try_that_fails_before_it_has_sent_anything_claims_no_id(gateway: Gateway) -> None:
    topic, job_id = create_topic(gateway.bootstrap, partitions=2), fresh_name("id")
    send(gateway, topic, "another", 7)

    with pytest.raises(Broken):
        failing_run(gateway, job_id, topic, partitions=2)

    assert f"headgate.test.{job_id}" not in groups(gateway)


def test_a_try_that_has_sent_something_keeps_its_id(gateway: Gateway) -> None:
    topic, job_id = create_topic(gateway.bootstrap), fresh_name("id")

    with pytest.raises(Broken):
        failing_run(gateway, job_id, topic, partitions=1, sends=[3])

    assert f"headgate.test.{job_id}" in groups(gateway)
    with state_of(gateway, job_id, topic) as again:
        again.prepare(topic, 1, is_new=False)
    assert RecordPosition("orders", 0, 3) in again.done
    assert again.done.count == 1


def test_a_run_that_ends_well_and_has_sent_nothing_says_so(gateway: Gateway) -> None:
    topic, job_id = create_topic(gateway.bootstrap), fresh_name("id")

    with state_of(gateway, job_id, topic) as state:
        state.prepare(topic, 1, is_new=False)
        state.has_sent_none = True

    assert f"headgate.test.{job_id}" not in groups(gateway)


def test_why_the_endpoint_has_refused_a_record_is_said(
    gateway: Gateway,
) -> None:
    topic = create_topic(gateway.bootstrap, configs={"max.message.bytes": "50"})

    with pytest.raises(NotSent, match=rf"{topic} \[0\] .*Message size too large"):
        send(gateway, topic, "id", 9)


def test_topics_are_made_and_those_that_are_there_stay(gateway: Gateway) -> None:
    there, new = create_topic(gateway.bootstrap, partitions=2), fresh_name()
    endpoint = Endpoint(gateway.bootstrap)

    endpoint.create_topics({there: 5, new: 3})

    counts = endpoint.partition_counts()
    assert (counts[there], counts[new]) == (2, 3)


def test_a_topic_that_cannot_be_made_is_named(gateway: Gateway) -> None:
    with pytest.raises(RequestError, match=r"^topic a b: "):
        Endpoint(gateway.bootstrap).create_topics({"a b": 1})
