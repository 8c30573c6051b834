"""JSON of contiguous messages equals answers that are made message by message."""

import json
from types import SimpleNamespace
from typing import cast
from uuid import UUID

from hypothesis import example, given
from hypothesis import strategies as st

from adapters.sqs.http.json_codec import encode_result
from adapters.sqs.mapping import MESSAGE_BYTES_MAX, body_of, read_headers
from adapters.sqs.messages.batch_entries import batch_result
from adapters.sqs.messages.contiguous_json import (
    SYSTEM_ATTRIBUTES,
    all_deleted_body,
    attributes_json,
    plain_columns,
    receive_body,
    system_attributes_json,
)
from adapters.sqs.messages.received import (
    NO_ATTRIBUTES,
    AttributeSelection,
    ReceivedMessage,
    to_message,
)
from adapters.sqs.text import to_text
from gateway.model import Record
from gateway.partition import Partition
from gateway.queues.model import Delivery

HEADERS = st.sampled_from(
    [
        (),
        (),
        (("sqs.sender", b"alice"),),
        (("sqs.sender", b"bob"),),
        (("sqs.trace", b"Root=1"),),
        (("dedup-id", b"d"),),
        (("color", b"red"),),
        (("message-id", b"an-id"),),
        (("dlq.attempts", b"3"),),
    ]
)
VALUES = st.one_of(
    st.text(max_size=20).map(lambda text: text.encode(errors="replace")),
    st.sampled_from(
        [
            b"",
            b'","',
            b'a",',
            b',"a',
            b'",\n  "',
            b'\\","',
            b"\\",
            b'"',
            b"\xc3",
            b"\xa9",
            b"\x00",
            None,
        ]
    ),
    st.sampled_from(["\ufffe", "\uffff", "é", "\U0001f600", "\x7f", "\t\r\n"]).map(str.encode),
    st.binary(max_size=8),
)
TAKEN_MS = 1_700_000_000_123
NAMES = [
    *(
        "SenderId",
        "SentTimestamp",
        "ApproximateReceiveCount",
        "AWSTraceHeader",
        "MessageGroupId",
    ),
    *(
        "ApproximateFirstReceiveTimestamp",
        "SequenceNumber",
        "DeadLetterQueueSourceArn",
        "Other",
    ),
]
FIRSTS = st.sampled_from([0, 1, 255, (1 << 48) - 3, 1 << 48, (1 << 62) + 5])
PARTITION = cast(
    "Partition", SimpleNamespace(topic=SimpleNamespace(uuid=UUID(int=7)), number=3)
)


def one_by_one(
    records: list[Record], handles: list[str], wanted: AttributeSelection = NO_ATTRIBUTES
) -> bytes:
    """Return what is answered where no message is like another."""
    messages = []
    for record, handle in zip(records, handles, strict=True):
        shown = ReceivedMessage(
            Delivery(PARTITION.number, 1, TAKEN_MS, record),
            read_headers(record.headers),
            body_of(record.value),
            handle,
        )
        messages.append(to_message(shown, PARTITION.topic, wanted, is_fifo=False, arn_of=str))
    return encode_result({"Messages": messages})


def test_a_body_that_ends_as_one_of_a_list_does_is_shown_as_it_is() -> None:
    bodies = ['"a","b",', ':"x"},{"MessageId":"y","Body":"', '",\n  "', "\\"]
    records = [Record(at, 5, None, body.encode(), ()) for at, body in enumerate(bodies)]
    shown = plain_columns(PARTITION, records)
    assert shown is not None
    answer = json.loads(receive_body(shown, [b"h"] * len(bodies)))
    assert [message["Body"] for message in answer["Messages"]] == bodies


@given(
    first=FIRSTS,
    kinds=st.lists(
        st.tuples(st.sampled_from([None, None, b"k", b"\xff"]), VALUES, HEADERS),
        min_size=1,
        max_size=12,
    ),
)
@example(0, [(None, b"\xff", ()), (None, b"text", ()), (None, b'"', ())])
@example(0, [(b"\xff", b"text", ())])
@example(0, [(b"\xff", b"text", ()), (None, b"\xff", ())])
def test_contiguous_messages_are_answered_as_messages_one_by_one(
    first: int, kinds: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes], ...]]]
) -> None:
    records = [
        Record(offset, 5, key, value, headers)
        for offset, (key, value, headers) in enumerate(kinds, start=first)
    ]
    handles = [f"handle/{offset}+=" for offset in range(len(records))]
    shown = plain_columns(PARTITION, records)
    is_plain = all(
        value is not None and read_headers(headers).message_id is None
        for _, value, headers in kinds
    ) and not (
        any(key == b"\xff" for key, _, _ in kinds)
        and any(value is not None and to_text(value) is None for _, value, _ in kinds)
    )
    assert (shown is not None) == is_plain
    if shown is not None:
        body = receive_body(shown, [handle.encode() for handle in handles])
        assert body == one_by_one(records, handles)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([4, 5]),
            st.sampled_from([None, None, b"", b"k"]),
            st.sampled_from([b"body", b"body", b"\xff\x00"]),
            HEADERS,
        ),
        min_size=1,
        max_size=6,
    ),
    st.none() | st.frozensets(st.sampled_from(NAMES)),
)
@example([(4, None, b"body", ()), (5, None, b"body", ())], None)  # one sender, at two times
@example([(4, None, b"\xff", ()), (5, None, b"body", ())], None)
@example([(4, None, b"\xff", ()), (5, None, b"body", ())], frozenset({"Other"}))
def test_attributes_are_those_of_messages_one_by_one(
    kinds: list[tuple[int, bytes | None, bytes, tuple[tuple[str, bytes], ...]]],
    system: frozenset[str] | None,
) -> None:
    records = [
        Record(offset, timestamp, key, value, headers)
        for offset, (timestamp, key, value, headers) in enumerate(kinds)
    ]
    handles = [f"handle/{offset}+=" for offset in range(len(records))]
    shown = plain_columns(PARTITION, records)
    if shown is None:
        return
    stored = [read_headers(record.headers) for record in records]
    more_to_say = [
        bool(record.key or one.others or one.trace or one.dedup_id or one.dead_letter)
        for record, one in zip(records, stored, strict=True)
    ]
    assert [not one for one in shown[SYSTEM_ATTRIBUTES]] == more_to_say
    if not any(more_to_say):
        attributes = attributes_json(shown[SYSTEM_ATTRIBUTES], system, TAKEN_MS)
        body = receive_body(shown, [handle.encode() for handle in handles], attributes)
        wanted = AttributeSelection(system, True, frozenset({"dlq.attempts"}), ("dlq",))  # noqa: FBT003
        assert body == one_by_one(records, handles, wanted)


def test_a_sender_may_be_called_anything() -> None:
    sender = 'a","SentTimestamp":"\\'
    record = Record(0, 5, None, b"body", (("sqs.sender", sender.encode()),))
    shown = plain_columns(PARTITION, [record])
    assert shown is not None
    assert shown[SYSTEM_ATTRIBUTES] == [system_attributes_json(sender, 5)]
    for names in ({"SenderId"}, {"SentTimestamp"}, {"SenderId", "SentTimestamp"}):
        attributes = attributes_json(shown[SYSTEM_ATTRIBUTES], frozenset(names), TAKEN_MS)
        wanted = AttributeSelection(frozenset(names), False, frozenset(), ())  # noqa: FBT003
        assert receive_body(shown, [b"h"], attributes) == one_by_one([record], ["h"], wanted)


def test_what_is_larger_than_a_message_is_not_plain() -> None:
    def shown(size_bytes: int, byte: bytes = b"x") -> object:
        return plain_columns(PARTITION, [Record(0, 5, None, byte * size_bytes, ())])

    assert shown(MESSAGE_BYTES_MAX) is not None
    assert shown(MESSAGE_BYTES_MAX + 1) is None
    assert shown(MESSAGE_BYTES_MAX // 4 * 3, b"\xff") is not None  # in base64
    assert shown(MESSAGE_BYTES_MAX // 4 * 3 + 1, b"\xff") is None


def test_attributes_count_as_part_of_a_message_though_nobody_asks_for_them() -> None:
    def shown(size_bytes: int) -> object:
        headers = (("color", b"red"),)  # as it counts: name, type and value
        return plain_columns(PARTITION, [Record(0, 5, None, b"x" * size_bytes, headers)])

    own_bytes = len("color") + len("String") + len("red")
    assert shown(MESSAGE_BYTES_MAX - own_bytes) is not None
    assert shown(MESSAGE_BYTES_MAX - own_bytes + 1) is None


@given(st.lists(st.from_regex(r"[A-Za-z0-9_-]{1,80}", fullmatch=True), min_size=1, max_size=10))
def test_deletes_are_answered_as_any_batch_is(entry_ids: list[str]) -> None:
    successful = [{"Id": entry_id} for entry_id in entry_ids]
    assert all_deleted_body(entry_ids) == encode_result(batch_result(successful, []))
