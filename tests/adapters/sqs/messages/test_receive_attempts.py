"""Receive attempts: how long they can be repeated, and what ends them."""

from uuid import UUID

from adapters.sqs.messages.receive_attempts import ATTEMPT_MS, Attempt, ReceiveAttempts
from gateway.queues.model import DeliveryId

NOW = 1_700_000_000_000
TOPIC, OTHER = UUID(int=1), UUID(int=2)
FIRST = (DeliveryId(0, 10, 1), NOW - 5)
SECOND = (DeliveryId(0, 11, 1), NOW - 4)


def remembered(attempts_max: int = 10) -> ReceiveAttempts:
    attempts = ReceiveAttempts(attempts_max=attempts_max)
    attempts.remember(TOPIC, "try-1", [FIRST, SECOND], NOW)
    return attempts


def test_attempt_is_known_for_five_minutes() -> None:
    attempts = remembered()

    assert attempts.find(TOPIC, "try-1", NOW + ATTEMPT_MS - 1) == Attempt((FIRST, SECOND), NOW)
    assert attempts.find(TOPIC, "try-1", NOW + ATTEMPT_MS) is None
    assert len(attempts) == 0


def test_attempt_belongs_to_its_queue() -> None:
    assert remembered().find(OTHER, "try-1", NOW) is None


def test_attempt_is_over_once_a_message_has_changed() -> None:
    attempts = remembered()

    attempts.message_changed(TOPIC, DeliveryId(0, 11, 1))

    assert attempts.find(TOPIC, "try-1", NOW) is None
    attempts.message_changed(TOPIC, DeliveryId(0, 10, 1))  # of no attempt any more


def test_other_message_changes_nothing() -> None:
    attempts = remembered()

    attempts.message_changed(TOPIC, DeliveryId(1, 11, 1))
    attempts.message_changed(OTHER, DeliveryId(0, 11, 1))

    assert attempts.find(TOPIC, "try-1", NOW) is not None


def test_message_that_came_again_ends_the_attempt_that_it_came_by_last() -> None:
    attempts = remembered()
    attempts.remember(TOPIC, "try-2", [(DeliveryId(0, 10, 2), NOW - 5)], NOW + 1)

    attempts.message_changed(TOPIC, DeliveryId(0, 10, 2))

    assert attempts.find(TOPIC, "try-2", NOW + 1) is None
    assert attempts.find(TOPIC, "try-1", NOW + 1) is not None


def test_answer_without_messages_is_none_to_repeat() -> None:
    attempts = remembered()

    attempts.remember(TOPIC, "try-1", [], NOW)

    assert attempts.find(TOPIC, "try-1", NOW) is None


def test_oldest_is_forgotten_above_the_bound() -> None:
    attempts = remembered(attempts_max=1)

    attempts.remember(OTHER, "try-2", [FIRST], NOW + 1)

    assert attempts.find(TOPIC, "try-1", NOW + 1) is None
    assert attempts.find(OTHER, "try-2", NOW + 1) is not None


def test_attempts_go_with_their_queue() -> None:
    attempts = remembered()
    attempts.remember(OTHER, "try-1", [FIRST], NOW)

    attempts.forget_topic(TOPIC)

    assert attempts.find(TOPIC, "try-1", NOW) is None
    assert attempts.find(OTHER, "try-1", NOW) is not None
