"""The history checker finds each fault in a history made by hand, and no fault in a good one."""

import threading

import pytest

from tests.support.history import History, Operation, Outcome, Report, TooManyEvents, name_of
from tests.support.history_kafka import check_partitions
from tests.support.history_mqtt import check_topics
from tests.support.history_sqs import check_queues

OK = Outcome.OK


def kafka(*values: str, where: str = "orders-0") -> History:
    """Return a history whose values are acknowledged at 0, 1, 2, ..."""
    history = History()
    for offset, value in enumerate(values):
        history.end(history.send("producer", where, value), OK, offset=offset)
    return history


def read(history: History, *places: tuple[int, str], client: str = "consumer") -> None:
    for offset, value in places:
        history.take(client, "orders-0", value, offset=offset)


def test_a_good_kafka_history_passes() -> None:
    history = kafka("a", "b", "c")
    history.send("producer", "orders-0", "unknown and absent")
    history.send("producer", "orders-0", "unknown and there")
    history.end(history.send("producer", "orders-0", "refused"), Outcome.FAIL)
    read(history, (0, "a"), (1, "b"), (2, "c"), (3, "unknown and there"))
    read(history, (1, "b"), (2, "c"), client="began later")
    assert str(check_partitions(history)) == "no problem"


def test_an_acknowledged_record_below_what_was_read_is_lost() -> None:
    history = kafka("a", "b", "c")
    read(history, (0, "a"), (2, "c"))
    report = check_partitions(history)
    assert "lost" in report.rules
    assert "producer sends b to orders-0: ok at 1" in str(report)


def test_an_acknowledged_record_at_the_end_is_unseen() -> None:
    history = kafka("a", "b")
    read(history, (0, "a"))
    assert check_partitions(history).rules == {"unseen"}


def test_a_record_at_two_offsets_is_a_duplicate() -> None:
    history = kafka("a", "b")
    read(history, (0, "a"), (1, "b"), (2, "a"))
    assert check_partitions(history).rules == {"duplicate"}


def test_doubles_of_a_client_that_resends_are_counted() -> None:
    history = kafka("a", "b")
    read(history, (0, "a"), (1, "b"), (2, "a"))
    report = check_partitions(history, resending={"producer"})
    assert (report.rules, report.counts["doubles"]) == (set(), 1)


def test_two_values_at_one_offset_are_found() -> None:
    history = kafka("a")
    history.send("producer", "orders-0", "b")
    read(history, (0, "a"))
    read(history, (0, "b"), client="other")
    assert check_partitions(history).rules == {"two values at one offset"}


def test_an_acknowledgement_that_names_another_offset_is_found() -> None:
    history = kafka("a", "b")
    read(history, (0, "b"), (1, "a"))
    assert "two values at one offset" in check_partitions(history).rules


def test_a_poll_that_goes_back_is_found() -> None:
    history = kafka("a", "b")
    read(history, (0, "a"), (1, "b"), (0, "a"))
    assert check_partitions(history).rules == {"nonmonotonic poll"}


def test_a_poll_that_skips_a_record_is_found() -> None:
    history = kafka("a", "b", "c")
    read(history, (0, "a"), (1, "b"), (2, "c"))
    read(history, (0, "a"), (2, "c"), client="skips")
    report = check_partitions(history)
    assert report.rules == {"skipped poll"}
    assert "skips takes c" in str(report)


def test_a_hole_that_nobody_wrote_is_no_skip() -> None:
    history = History()
    for offset, value in ((0, "a"), (5, "b")):
        history.end(history.send("producer", "orders-0", value), OK, offset=offset)
    read(history, (0, "a"), (5, "b"))
    assert check_partitions(history).rules == set()


def test_records_of_a_producer_out_of_order_are_found() -> None:
    history = History()
    for value in ("a", "b"):
        history.send("producer", "orders-0", value)
    read(history, (0, "b"), (1, "a"))
    assert check_partitions(history).rules == {"out of order"}


def test_a_refused_record_that_is_there_is_found() -> None:
    history = History()
    history.end(history.send("producer", "orders-0", "a"), Outcome.FAIL)
    read(history, (0, "a"))
    assert check_partitions(history).rules == {"refused, and there"}


def test_a_record_that_was_never_sent_is_found() -> None:
    history = History()
    read(history, (0, "a"))
    assert check_partitions(history).rules == {"never sent"}


def test_a_record_in_another_partition_is_found() -> None:
    history = kafka("a", where="orders-1")
    read(history, (0, "a"))
    assert "in another partition" in check_partitions(history).rules


def mqtt(*values: str, qos: int = 2) -> History:
    history = History()
    for value in values:
        history.end(history.send("publisher", "load/a", value, qos=qos), OK)
    return history


def arrive(history: History, *values: str, client: str = "one", qos: int = 2) -> None:
    for value in values:
        history.take(client, "load/a", value, qos=qos)


def topics(history: History, *members: str) -> Report:
    return check_topics(history, {"g": members or ("one",)})


def test_a_good_mqtt_history_passes() -> None:
    history = mqtt("a", "b")
    history.end(history.send("publisher", "load/a", "at most once", qos=0), OK)
    arrive(history, "a", "b")
    assert topics(history).rules == set()


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_that_does_not_arrive_is_missing(qos: int) -> None:
    history = mqtt("a", "b", qos=qos)
    arrive(history, "a", qos=qos)
    report = topics(history)
    assert report.rules == {f"QoS {qos} missing"}
    assert "publisher sends b to load/a" in str(report)


def test_qos_2_twice_is_found_and_qos_1_is_counted() -> None:
    history = mqtt("a", "b")
    arrive(history, "a", "a")
    assert topics(history).rules == {"QoS 2 twice", "QoS 2 missing"}
    history = mqtt("a")
    arrive(history, "a", "a", qos=1)
    report = topics(history)
    assert (report.rules, report.counts["doubles"]) == (set(), 1)


def test_messages_of_a_topic_out_of_order_are_found() -> None:
    history = mqtt("a", "b")
    arrive(history, "b", "a")
    assert topics(history).rules == {"out of order"}


def test_a_resent_message_behind_a_later_one_keeps_the_order() -> None:
    history = mqtt("a", "b", qos=1)
    arrive(history, "a", "b", "a", qos=1)
    assert topics(history).rules == set()


def test_members_of_a_shared_subscription_get_a_message_between_them() -> None:
    history = mqtt("a", "b", "c")
    arrive(history, "b", "c", client="one")
    arrive(history, "a", client="two")
    assert topics(history, "one", "two").rules == set()
    arrive(history, "b", client="two")
    assert topics(history, "one", "two").rules == {"QoS 2 twice"}


def sqs(*values: str, group: str = "") -> History:
    history = History()
    for value in values:
        history.end(history.send("sender", "work", value, group=group), OK)
    return history


def receive(history: History, *values: str, asked: int = -1, where: str = "work") -> None:
    for value in values:
        history.take("receiver", where, value, identity=f"id of {value}", asked=asked)


def deleted(history: History, value: str, outcome: Outcome = OK) -> Operation:
    operation = history.delete("receiver", "work", value)
    history.end(operation, outcome)
    return operation


def test_a_good_sqs_history_passes() -> None:
    history = sqs("a", "b")
    receive(history, "a", "a", "b")
    deleted(history, "a")
    deleted(history, "b", Outcome.UNKNOWN)
    receive(history, "b")
    report = check_queues(history)
    assert (report.rules, report.counts["doubles"]) == (set(), 2)


def test_a_deleted_message_that_comes_back_is_found() -> None:
    history = sqs("a")
    receive(history, "a")
    deleted(history, "a")
    receive(history, "a", asked=history.now())
    report = check_queues(history)
    assert report.rules == {"deleted, and back"}
    assert "receiver deletes a" in str(report)


def test_a_receive_that_was_on_its_way_may_bring_a_deleted_message() -> None:
    history = sqs("a")
    asked = history.now()
    receive(history, "a", asked=asked)
    deleted(history, "a")
    receive(history, "a", asked=asked)
    assert check_queues(history).rules == set()


def test_a_message_that_never_comes_is_missing() -> None:
    assert check_queues(sqs("a")).rules == {"missing"}


def test_a_message_may_come_to_the_dead_letters_instead() -> None:
    history = sqs("a", "b")
    receive(history, "a")
    receive(history, "b", where="dead")
    assert check_queues(history, dead_letters={"work": "dead"}).rules == set()
    deleted(history, "a")
    receive(history, "a", where="dead")
    report = check_queues(history, dead_letters={"work": "dead"})
    assert report.rules == {"deleted, and dead"}


def test_one_body_under_two_message_ids_is_stored_twice() -> None:
    history = sqs("a")
    receive(history, "a")
    history.take("receiver", "work", "a", identity="another id")
    assert check_queues(history).rules == {"stored twice"}


def test_a_group_out_of_order_is_found() -> None:
    history = sqs("a", "b", "c", group="g")
    receive(history, "a", "c", "b", "c")
    report = check_queues(history)
    assert report.rules == {"group out of order"}
    receive(history, "c")
    assert len(report.problems["group out of order"]) == 1


def test_values_are_unique() -> None:
    with pytest.raises(AssertionError, match="values are unique"):
        kafka("a", "a")


def test_a_full_history_says_so() -> None:
    history = History(events_max=2)
    history.send("producer", "orders-0", "a")
    history.send("producer", "orders-0", "b")
    with pytest.raises(TooManyEvents, match="more than 2 events"):
        history.take("consumer", "orders-0", "a")


def test_long_values_that_begin_alike_have_different_names() -> None:
    one, other = b"producer-17-" + bytes(2_000), b"producer-17-" + bytes(2_001)
    assert name_of(one) != name_of(other)
    assert name_of(one).startswith("producer-17-")
    assert len(name_of(one)) < 64


def test_a_report_is_short() -> None:
    report = check_partitions(kafka(*(f"{n}" for n in range(50))))
    assert "and 45 more" in str(report)
    with pytest.raises(AssertionError, match="unseen: 50"):
        report.raise_problems()


def test_threads_share_a_history() -> None:
    history = History()

    def run(name: str) -> None:
        for number in range(500):
            send = history.send(name, "orders-0", f"{name} {number}")
            history.end(send, OK)
            history.take(name, "orders-0", f"{name} {number}")

    threads = [threading.Thread(target=run, args=(f"{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    numbers = [one.began for one in history.sends.values()]
    numbers += [one.ended for one in history.sends.values()]
    numbers += [one.number for one in history.deliveries]
    assert sorted(numbers) == list(range(1, 4 * 500 * 3 + 1))
