"""Plain batches get the same answers as batches that are sent message by message."""

from hypothesis import given
from hypothesis import strategies as st

from adapters.sqs.http.json_codec import encode_result
from adapters.sqs.messages.batch_entries import batch_result
from adapters.sqs.messages.md5 import md5_of_body, md5s_of_bodies
from adapters.sqs.messages.plain_batches import _values, all_sent_body
from adapters.sqs.text import to_bytes

ENTRIES = st.lists(
    st.tuples(
        st.from_regex(r"[A-Za-z0-9_-]{1,80}", fullmatch=True), st.uuids().map(str), st.binary()
    ),
    min_size=1,
    max_size=10,
)


@given(ENTRIES)
def test_sends_are_answered_as_any_batch_is(entries: list[tuple[str, str, bytes]]) -> None:
    body = all_sent_body(
        [entry_id for entry_id, _, _ in entries],
        [message_id.encode() for _, message_id, _ in entries],
        md5s_of_bodies([data for _, _, data in entries]),
    )
    successful = [
        {"Id": entry_id, "MessageId": message_id, "MD5OfMessageBody": md5_of_body(data)}
        for entry_id, message_id, data in entries
    ]
    assert body == encode_result(batch_result(successful, []))


@given(
    st.lists(
        st.one_of(
            st.text(max_size=5), st.sampled_from(["", "\ud800", "\x00", "\ufffe", "é", "\r"])
        ),
        min_size=1,
        max_size=10,
    )
)
def test_bodies_that_cannot_be_sent_are_not_plain(bodies: list[str]) -> None:
    data = [to_bytes(body) for body in bodies]
    can_be_sent = all(data) and max(len(one or b"") for one in data) <= 6
    found = _values(bodies, 6)
    assert (found and found[0]) == (data if can_be_sent else None)


def test_what_stands_in_json_as_it_is_is_known_from_the_send() -> None:
    found = [_values(["plain", body], 9) for body in ("text", 'a"b', "a\\b", "a\tb", "é")]
    assert [one and one[1] for one in found] == [True, False, False, False, False]
