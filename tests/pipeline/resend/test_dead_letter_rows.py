"""Grouping of dead letters by reason, and the record of those that were sent back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.resend import dead_letter_rows
from pipeline.resend.dead_letter_rows import fingerprint, read_headers
from pipeline.resend.endpoint import Endpoint
from pipeline.resend.job_state import Done, RecordPosition, check_id, marker, parse_marker


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("timeout after 30 s", "timeout after 5000 s"),
        ("no customer 'Anna Öz'", "no customer 'it'"),
        ('field "a": missing', 'field "b c": missing'),
        (
            "order 6f1f7b0e-98a9-4ac6-9d42-0d9f4c9f1f00 gone",
            "order 00000000-98a9-4ac6-9d42-0d9f4c9f1f01 gone",
        ),
        ("at 0x7ffde1", "at 0x10"),
        ("trace 4bf92f3577b34da6a3ce929d0e0e4736", "trace a3ce929d0e0e47364bf92f3577b34da6"),
        ("row12 is  bad", "row7 is bad"),
        ("took -3.5 s", "took 17,000 s"),
    ],
)
def test_reasons_that_differ_in_what_varies_are_one(one: str, other: str) -> None:
    assert fingerprint(one) == fingerprint(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("attempts", "rejected"), ("cannot parse 1", "cannot send 1"), ("", "x"), ("5", "five")],
)
def test_reasons_of_other_words_are_not(one: str, other: str) -> None:
    assert fingerprint(one) != fingerprint(other)


@given(st.text(max_size=400))
def test_any_reason_has_a_fingerprint(text: str) -> None:
    assert fingerprint(text)


def test_headers_that_make_no_sense_are_read_as_nothing() -> None:
    found = read_headers("dead", [("dlq.attempts", b"many"), ("dlq.source.offset", None)])

    assert (found.attempts, found.source_offset, found.source_topic) == (-1, -1, "")
    assert found.reason == dead_letter_rows.NO_REASON


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60)), max_size=200))
def test_what_is_done_is_exactly_what_was_noted(places: list[tuple[int, int]]) -> None:
    done = Done()
    half = len(places) // 2
    for number, offset in places[:half]:
        done.add(RecordPosition("t", number, offset))
    assert (RecordPosition("t", 0, 999)) not in done  # and what was gathered is settled
    for number, offset in places[half:]:
        done.add(RecordPosition("t", number, offset))

    found = {(n, o) for n in range(3) for o in range(62) if RecordPosition("t", n, o) in done}

    assert found == set(places)
    assert RecordPosition("other", 0, 0) not in done


@pytest.mark.parametrize(
    "value",
    [None, b"", b"job", b"other t/0/1", b"job t/0", b"job t/x/1", b"job t/0/-1", b"\xff"],
)
def test_a_marker_of_another_job_or_none_is_none(value: bytes | None) -> None:
    assert parse_marker("job", value) is None


def test_a_marker_says_where_from() -> None:
    position = RecordPosition("orders.dead", 3, 1 << 40)

    assert parse_marker("job", marker("job", position, "a table with a space")) == position


@pytest.mark.parametrize("job_id", ["", "a b", "a/b", "x" * 65])
def test_an_id_that_cannot_stand_in_a_header_is_refused(job_id: str) -> None:
    with pytest.raises(Exception, match="--id"):
        check_id(job_id)


def test_a_password_is_in_no_text() -> None:
    assert "s3cret" not in repr(Endpoint("a:1", "me", "s3cret"))
