import pytest

from features.dead_letter import (
    HOPS_MAX,
    Origin,
    dead_letter_headers,
    hops_of,
    origin,
)
from gateway.model import Headers, is_dead_letter_reference, strip_dead_letter_headers

ORIGIN = Origin("orders", 2, 7_000_000_000, "@queue", 5, "attempts", "sqs")


def dead(headers: Headers, source: Origin = ORIGIN) -> list[tuple[str, bytes | None]]:
    made = dead_letter_headers(headers, source, message_id="id-1")
    assert made is not None
    return made


def test_dead_letter_says_why_and_whence() -> None:
    assert dict(dead([])) == {
        "message-id": b"id-1",
        "dlq.reason": b"attempts",
        "dlq.source.topic": b"orders",
        "dlq.source.partition": b"2",
        "dlq.source.offset": b"7000000000",
        "dlq.group": b"@queue",
        "dlq.attempts": b"5",
        "dlq.protocol": b"sqs",
        "dlq.hops": b"1",
    }


def test_origin_is_read_back() -> None:
    assert origin(dead([("x", b"1")])) == ORIGIN


def test_other_headers_stay_as_they_are_in_their_order() -> None:
    headers = [("b", b"\xff"), ("a", None), ("b", b"")]

    made = dead(headers)

    assert made[:3] == headers
    assert strip_dead_letter_headers(made)[:3] == headers


def test_message_keeps_the_id_that_it_has() -> None:
    made = dead([("message-id", b"own")])

    assert [value for name, value in made if name == "message-id"] == [b"own"]


def test_dead_letter_does_not_expire() -> None:
    made = dict(dead([("expires-at", b"1700000000000")]))

    assert "expires-at" not in made
    assert made["dlq.expires-at"] == b"1700000000000"


def test_second_death_tells_of_itself_and_counts_on() -> None:
    first = dead([])
    second = dead(first, Origin("late", 0, 3, "g", 1, "rejected"))

    assert origin(second) == Origin("late", 0, 3, "g", 1, "rejected")
    assert hops_of(second) == 2
    assert len([name for name, _ in second if name == "dlq.reason"]) == 1


def test_redrive_takes_away_all_but_the_hops_and_the_id() -> None:
    sent_on = strip_dead_letter_headers(dead([("a", b"1"), ("expires-at", b"5")]))

    assert sent_on == [("a", b"1"), ("message-id", b"id-1"), ("dlq.hops", b"1")]
    assert origin(sent_on) is None


def test_message_that_goes_in_circles_comes_to_an_end() -> None:
    headers: Headers = []
    for hops in range(1, HOPS_MAX + 1):
        headers = strip_dead_letter_headers(dead(headers))
        assert hops_of(headers) == hops

    assert dead_letter_headers(headers, ORIGIN, message_id="id-1") is None


@pytest.mark.parametrize("value", [None, b"", b"x", b"-1", b"1.5", b"9" * 40, "²".encode()])
def test_hops_that_make_no_sense_are_none(value: bytes | None) -> None:
    assert hops_of([("dlq.hops", value)]) == 0


def test_origin_of_nonsense_has_zeros() -> None:
    headers = [("dlq.reason", b"\xff"), ("dlq.source.offset", b"-1"), ("dlq.attempts", b"many")]

    assert origin(headers) == Origin("", 0, 0, "", 0, "�")


def test_letter_without_its_message_is_known_by_its_header() -> None:
    for name in ("dlq.left-out", "dlq.reason", "a"):
        headers = [("b", None), (name, b"9 bytes, at most 8 are taken")]

        assert is_dead_letter_reference(headers) == (name == "dlq.left-out")
