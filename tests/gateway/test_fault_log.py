"""Faults of peers are counted one by one and logged at a bounded rate."""

import structlog
from structlog.testing import capture_logs

from gateway.fault_log import FaultLog


def lines_of(
    kinds_by_second: list[list[str]],
) -> tuple[FaultLog, list[structlog.typing.EventDict]]:
    faults = FaultLog("lines")
    with capture_logs() as lines:
        for second in kinds_by_second:
            for number, kind in enumerate(second):
                faults.note(kind, f"10.0.0.{number}", f"detail {number}")
            faults.end_second()
    return faults, lines


def test_a_thousand_faults_in_a_second_are_two_lines_and_a_thousand_in_the_count() -> None:
    faults, lines = lines_of([["idle"] * 1_000])
    assert faults.counts["idle"] == 1_000
    assert [line["event"] for line in lines] == ["peer fault", "peer faults"]
    assert lines[0]["detail"] == "detail 0"
    assert lines[1]["count"] == 999
    assert lines[1]["last_detail"] == "detail 999"


def test_while_faults_go_on_there_is_one_line_a_second() -> None:
    _, lines = lines_of([["idle"] * 5, ["idle"] * 7, ["idle"] * 9])
    assert [line.get("count") for line in lines] == [None, 4, 7, 9]


def test_after_a_quiet_second_the_first_fault_is_a_line_at_once() -> None:
    _, lines = lines_of([["idle"] * 2, [], ["idle"]])
    assert [line.get("count") for line in lines] == [None, 1, None]


def test_kinds_do_not_hide_each_other() -> None:
    _, lines = lines_of([["idle", "frame", "idle"]])
    assert [(line["kind"], line.get("count")) for line in lines] == [
        ("idle", None),
        ("frame", None),
        ("idle", 1),
    ]
