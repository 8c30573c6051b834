"""Offsets, keys and times of batches as a lane gets them, with holes and corrupt records."""

import pytest

from features.queue.model import AT_ONCE, Run
from gateway.model import HEADER_BYTES, parse_batch_header, stamp
from gateway.queues.batch_runs import (
    Delay,
    delayed_runs,
    keyed_runs,
    priority_runs,
    runs_of_records,
)
from gateway.queues.delay_changes import LaneDelay
from gateway.queues.lane_keys import LaneKeys
from gateway.queues.model import Order, QueueSettings
from gateway.records.codec import decode_batch, encode_batch, encode_headers, encode_runs
from gateway.records.record_run import RecordRun

NOW = 1_700_000_000_000
BY_KEY = LaneKeys(QueueSettings(order=Order.KEY))
BY_PRIORITY = LaneKeys(QueueSettings(order=Order.PRIORITY, priority_max=5))


def batch(*records: tuple[int, bytes | None, str], base_offset: int = 100) -> bytearray:
    """Records of (timestamp, key, deliver-at or nothing)."""
    new = [
        (timestamp, key, b"v" * 300, [("deliver-at", at.encode())] if at else [])
        for timestamp, key, at in records
    ]
    data = encode_batch(new)
    stamp(data, base_offset, 0)
    return data


def test_records_of_one_key_in_a_row_are_one_run() -> None:
    data = batch(*[(NOW, key, "") for key in (b"a", b"a", None, None, b"", b"a")])
    assert keyed_runs(data, parse_batch_header(data), 100) == [
        Run(100, 101, b"a"),
        Run(102, 103, None),
        Run(104, 104, b""),
        Run(105, 105, b"a"),
    ]


def test_many_records_are_told_apart() -> None:
    keys = [b"%d" % (n // 3) * (n % 70) for n in range(500)]
    data = batch(*[(NOW + n, key, "") for n, key in enumerate(keys)])
    told: dict[int, bytes | None] = {}
    for run in keyed_runs(data, parse_batch_header(data), 100):
        told.update(dict.fromkeys(range(run.first, run.last + 1), run.key))
    assert told == {100 + n: key for n, key in enumerate(keys)}


def test_a_message_is_visible_when_it_is_old_enough_or_when_it_says() -> None:
    data = batch(
        (NOW, b"a", ""), (NOW, b"a", ""), (NOW + 1, b"a", ""), (NOW, b"b", "5"), (NOW, b"", "x")
    )
    header = parse_batch_header(data)
    assert delayed_runs(data, 100, header, Delay(LaneDelay(10), NOW + 1, 7), BY_KEY) == [
        Run(100, 101, b"a", NOW + 17),
        Run(102, 102, b"a", NOW + 18),
        Run(103, 103, b"b", 12),
        Run(104, 104, b"", NOW + 17),
    ]
    without_keys = delayed_runs(data, 100, header, Delay(LaneDelay(10), NOW), None)
    assert without_keys[0] == Run(100, 102, None, NOW + 10), "the future counts as now"
    assert [run.key for run in without_keys] == [None] * 3


@pytest.mark.parametrize("damage", [b"\xff" * 8, b"\x00" * 40])
def test_what_cannot_be_read_is_one_run(damage: bytes) -> None:
    data = batch(*[(NOW, b"k", "") for _ in range(3)])
    data[HEADER_BYTES : HEADER_BYTES + len(damage)] = damage
    header = parse_batch_header(data)
    whole = [Run(100, 102, None, AT_ONCE)]
    assert keyed_runs(data, header, 100) == whole
    assert delayed_runs(data, 100, header, Delay(LaneDelay(1), NOW), BY_KEY) == whole


def test_a_time_that_is_none_counts_as_unsaid() -> None:
    data = batch((NOW, None, "9" * 5_000))
    runs = delayed_runs(data, 100, parse_batch_header(data), Delay(LaneDelay(10), NOW), None)
    assert [run.visible_unix_ms for run in runs] == [NOW + 10]


def test_runs_by_priority_are_the_same_whatever_is_known_of_a_batch() -> None:
    priorities = [None, b"0", b"3", b"3", b"9", b"x", None, b"1"]
    levels = [0, 0, 3, 3, 5, 0, 0, 1]
    runs = [
        RecordRun(
            b"key",
            (b"v", b"w"),
            encode_headers([] if value is None else [("a", b"1"), ("priority", value)]),
            NOW,
        )
        for value in priorities
    ]
    data = encode_runs(runs)
    stamp(data, 100, 0)
    header = parse_batch_header(data)

    found = list(BY_PRIORITY.runs_of(runs, 100))

    told = {at: run.key for run in found for at in range(run.first, run.last + 1)}
    assert told == {
        100 + at: bytes((levels[at // 2],)) if levels[at // 2] else None
        for at in range(2 * len(levels))
    }
    assert len(found) == 5
    assert priority_runs(data, 100, header, BY_PRIORITY) == found
    assert runs_of_records(decode_batch(data), header, BY_PRIORITY) == found
    assert [
        run[:3]
        for run in delayed_runs(data, 100, header, Delay(LaneDelay(1), NOW), BY_PRIORITY)
    ] == [run[:3] for run in found]
