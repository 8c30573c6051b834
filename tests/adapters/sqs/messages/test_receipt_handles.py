"""Receipt handles: signed ones decode to their receipt, others are refused."""

import string
from binascii import a2b_base64, b2a_base64
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.sqs.errors import RECEIPT_HANDLE_IS_INVALID, SqsError
from adapters.sqs.messages.receipt_handles import (
    CONTIGUOUS_MAX,
    HANDLE_CHARS,
    ContiguousReceipt,
    Receipt,
    ReceiptHandles,
)
from gateway.model import Record
from gateway.queues.model import Delivery, DeliveryId

SECRET = bytes(range(32))
TOPIC = UUID(int=0x1234_5678_9ABC_DEF0_1111_2222_3333_4444)
RECEIPTS = ReceiptHandles(SECRET, TOPIC)


def handle_of(number: int, offset: int, attempt: int, received_unix_ms: int) -> str:
    record = Record(offset, 0, None, None)
    (handle,) = RECEIPTS.encode([Delivery(number, attempt, 0, record)], received_unix_ms)
    return handle


HANDLE = handle_of(3, 70_000, 2, 1_700_000_000_123)


def check_is_refused(handle: str, *, secret: bytes = SECRET, topic: UUID = TOPIC) -> None:
    with pytest.raises(SqsError) as caught:
        ReceiptHandles(secret, topic).decode(handle)
    assert caught.value.code is RECEIPT_HANDLE_IS_INVALID
    assert caught.value.message.startswith("The input receipt handle ")


@given(
    st.integers(0, (1 << 32) - 1),
    st.integers(0, (1 << 63) - 1),
    st.integers(1, (1 << 32) - 1),
    st.integers(0, (1 << 48) - 1),
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


def contiguous_handles(
    number: int, first: int, count: int, attempt: int = 1, received: int = 5
) -> list[str]:
    handles = RECEIPTS.encode_contiguous(number, first, count, attempt, received)
    return [handle.decode() for handle in handles]


@given(
    st.integers(0, 9),
    st.integers(0, 1 << 62),
    st.integers(1, CONTIGUOUS_MAX),
    st.integers(1, 9),
)
def test_contiguous_handles_decode_to_their_messages(
    number: int, first: int, count: int, attempt: int
) -> None:
    handles = contiguous_handles(number, first, count, attempt)
    assert RECEIPTS.decode_contiguous(handles) == ContiguousReceipt(
        number, range(first, first + count), attempt, 5
    )
    for place in {0, count // 2, count - 1}:
        delivery_id = DeliveryId(number, first + place, attempt)
        assert RECEIPTS.decode(handles[place]) == Receipt(delivery_id, 5)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(1, 2), st.integers(1, 4)), max_size=9))
def test_handles_of_deliveries_are_those_of_their_contiguous_runs(
    runs: list[tuple[int, int, int]],
) -> None:
    deliveries: list[Delivery] = []
    expected: list[tuple[int, int, int]] = []
    offset = 0
    for number, attempt, count in runs:
        for _ in range(count):
            deliveries.append(Delivery(number, attempt, 0, Record(offset, 0, None, None)))
            expected.append((number, offset, attempt))
            offset += 1
        offset += 1
    handles = RECEIPTS.encode(deliveries, 5)
    assert [RECEIPTS.decode(handle).delivery_id for handle in handles] == expected
    assert len(set(handles)) == len(handles)
    start = 0
    for number, attempt, count in runs:
        some = handles[start : start + count]
        assert some == contiguous_handles(number, expected[start][1], count, attempt)
        start += count


def test_a_handle_on_its_own_does_not_depend_on_other_messages() -> None:
    deliveries = [Delivery(0, 1, 0, Record(offset, 0, None, None)) for offset in range(5, 8)]
    handles = RECEIPTS.encode(deliveries, 5, contiguous=False)
    assert RECEIPTS.encode(deliveries[::2], 5, contiguous=False) == handles[::2]
    assert [RECEIPTS.decode(handle).delivery_id.offset for handle in handles] == [5, 6, 7]


def test_only_complete_handles_in_order_are_contiguous() -> None:
    handles = contiguous_handles(0, 100, 4)
    other = contiguous_handles(0, 100, 4, received=6)
    for some in (
        handles[1:],
        handles[::-1],
        [*handles[:3], other[3]],
        [*handles[:3], handles[2]],
        [*handles[:3], handles[3][:-1]],
        [handles[0] + handles[1][:1], handles[1][1:], *handles[2:]],
        [*handles[:3], handles[3][:-1] + "\u00e9"],
        [*handles[:3], handles[3][:-1] + ("A" if handles[3][-1] != "A" else "B")],
    ):
        assert RECEIPTS.decode_contiguous(some) is None
    assert RECEIPTS.decode_contiguous(handles[:3]) == ContiguousReceipt(
        0, range(100, 103), 1, 5
    )
    assert ReceiptHandles(bytes(32), TOPIC).decode_contiguous(handles) is None
    assert ReceiptHandles(SECRET, UUID(int=7)).decode_contiguous(handles) is None


def test_who_has_a_handle_cannot_make_that_of_the_next_message() -> None:
    first, second = (a2b_base64(handle) for handle in contiguous_handles(0, 100, 2))
    made = bytearray(first)
    made[30] = second[30]  # the index in the run
    check_is_refused(b2a_base64(made, newline=False).decode())
    assert first[31:] != second[31:]
