"""Receipt handles: what is signed comes back, what is not is refused."""

import string
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.sqs.errors import RECEIPT_HANDLE_IS_INVALID, SqsError
from adapters.sqs.receipts import HANDLE_CHARS, Receipt, Receipts
from gateway.model import Record
from gateway.queue_model import Delivery, DeliveryId

SECRET = bytes(range(32))
TOPIC = UUID(int=0x1234_5678_9ABC_DEF0_1111_2222_3333_4444)
RECEIPTS = Receipts(SECRET, TOPIC)


def handle_of(number: int, offset: int, attempt: int, received_unix_ms: int) -> str:
    record = Record(offset, 0, None, None)
    (handle,) = RECEIPTS.encode([Delivery(number, attempt, 0, record)], received_unix_ms)
    return handle


HANDLE = handle_of(3, 70_000, 2, 1_700_000_000_123)


def check_is_refused(handle: str, *, secret: bytes = SECRET, topic: UUID = TOPIC) -> None:
    with pytest.raises(SqsError) as caught:
        Receipts(secret, topic).decode(handle)
    assert caught.value.code is RECEIPT_HANDLE_IS_INVALID
    assert caught.value.message.startswith("The input receipt handle ")


@given(
    st.integers(0, (1 << 32) - 1),
    st.integers(0, (1 << 63) - 1),
    st.integers(1, (1 << 32) - 1),
    st.integers(0, (1 << 63) - 1),
)
def test_handle_says_what_it_was_made_of(
    number: int, offset: int, attempt: int, received_unix_ms: int
) -> None:
    handle = handle_of(number, offset, attempt, received_unix_ms)

    assert len(handle) == HANDLE_CHARS
    assert RECEIPTS.decode(handle) == Receipt(
        DeliveryId(number, offset, attempt), received_unix_ms
    )


@given(st.integers(0, HANDLE_CHARS - 1), st.sampled_from(string.ascii_letters + "+/=\n\x00é"))
def test_any_changed_character_is_refused(index: int, char: str) -> None:
    if HANDLE[index] != char:
        check_is_refused(HANDLE[:index] + char + HANDLE[index + 1 :])


@given(st.text(max_size=100))
def test_any_text_is_refused(text: str) -> None:
    check_is_refused(text)


def test_handle_of_another_queue_is_refused() -> None:
    check_is_refused(HANDLE, topic=UUID(int=7))


def test_handle_of_another_node_is_refused() -> None:
    check_is_refused(HANDLE, secret=bytes(32))


def test_refusal_shows_a_bounded_part() -> None:
    with pytest.raises(SqsError) as caught:
        RECEIPTS.decode("x" * 1_000_000)
    assert len(caught.value.message) < 2_000
