"""Log events of an outage: at once, at growing intervals, and once when it is over."""

from itertools import pairwise

from structlog.testing import capture_logs

from gateway.clock import ManualClock
from gateway.errors import StorageUnavailable
from storage_adapters.s3.outage import SAID_MS_MAX, SAID_MS_MIN, Outage

ERROR = StorageUnavailable("403")


def test_tries_are_many_and_lines_are_few() -> None:
    clock = ManualClock()
    outage = Outage("the bucket", clock)
    said_ms = []

    for _ in range(2 * 3_600):
        with capture_logs() as lines:
            outage.note("one", ERROR)
        said_ms += [clock.monotonic_ms() for _ in lines]
        clock.advance(500)

    pauses_ms = [later - earlier for earlier, later in pairwise(said_ms)]
    assert pauses_ms[:3] == [SAID_MS_MIN, 2 * SAID_MS_MIN, 4 * SAID_MS_MIN]
    assert pauses_ms[-1] == SAID_MS_MAX
    assert len(said_ms) < 20


def test_it_is_back_when_nobody_fails_any_more() -> None:
    outage = Outage("the bucket", ManualClock())
    with capture_logs() as lines:
        outage.note("one", ERROR)
        outage.note("two", ERROR)
        outage.over("one")
        outage.over("three")
        outage.note("two", ERROR)
        assert [line["event"] for line in lines] == ["the bucket is away"]

        outage.over("two")
        outage.over("two")

    assert [line["event"] for line in lines] == ["the bucket is away", "the bucket is back"]
    assert (lines[0]["error"], lines[1]["tries"]) == ("403", 3)


def test_the_next_outage_is_told_of_at_once() -> None:
    outage = Outage("the bucket", ManualClock())
    with capture_logs() as lines:
        for _ in range(2):
            outage.note("one", ERROR)
            outage.over("one")

    assert [line["event"].rpartition(" ")[2] for line in lines] == ["away", "back"] * 2
    assert [lines[n]["said_again_ms"] for n in (0, 2)] == [SAID_MS_MIN] * 2
