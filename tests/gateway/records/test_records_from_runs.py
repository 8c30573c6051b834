"""Runs say what the batch says that is encoded of them."""

from hypothesis import given
from hypothesis import strategies as st

from features.queue.model import Run
from gateway.model import TIMESTAMP_TYPE_MASK, parse_batch_header, stamp
from gateway.queues.batch_runs import keyed_runs, runs_of_records
from gateway.queues.lane_keys import LaneKeys
from gateway.queues.model import Order, QueueSettings
from gateway.records.codec import decode_batch, encode_headers, encode_runs
from gateway.records.record_run import RecordRun
from gateway.records.records_from_runs import keys_of_runs, records_of_runs

NOW = 1_700_000_000_000
BASE = 70_000
BY_KEY = LaneKeys(QueueSettings(order=Order.KEY))
TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
HEADERS = st.lists(st.tuples(TEXT, st.none() | st.binary(max_size=300)), max_size=2)
RUNS = st.lists(
    st.builds(
        RecordRun,
        st.sampled_from([None, b"", b"a", b"b" * 80]),
        st.lists(st.none() | st.binary(max_size=200), min_size=1, max_size=70),
        st.sampled_from([[], [("sqs.sender", b"ann")]]).map(encode_headers)
        | HEADERS.map(encode_headers),
        st.sampled_from([NOW, NOW + 1, NOW - 5_000]),
    ),
    min_size=1,
    max_size=6,
)


@given(RUNS, st.sampled_from([0, TIMESTAMP_TYPE_MASK]))
def test_records_of_runs_are_those_of_the_batch(runs: list[RecordRun], attributes: int) -> None:
    batch = encode_runs(runs, attributes=attributes)
    stamp(batch, BASE, 0)
    stamp_unix_ms = parse_batch_header(batch).max_timestamp_unix_ms if attributes else None

    found = records_of_runs(runs, BASE, append_time_unix_ms=stamp_unix_ms)

    assert found == decode_batch(batch)


@given(RUNS)
def test_a_lane_is_told_the_same_whatever_is_known_of_a_batch(runs: list[RecordRun]) -> None:
    batch = encode_runs(runs)
    stamp(batch, BASE, 0)
    header = parse_batch_header(batch)
    told = keyed_runs(batch, header, BASE)

    assert [Run(*one) for one in keys_of_runs(runs, BASE)] == told
    assert runs_of_records(decode_batch(batch), header, BY_KEY) == told


def test_records_that_are_missing_part_a_run() -> None:
    batch = encode_runs([RecordRun(b"k", [b"0", b"1", b"2"], encode_headers([]), NOW)])
    stamp(batch, BASE, 0)
    first, _, third = decode_batch(batch)
    header = parse_batch_header(batch)

    assert runs_of_records([first, third], header, BY_KEY) == [
        Run(BASE, BASE, b"k"),
        Run(BASE + 2, BASE + 2, b"k"),
    ]
    assert runs_of_records([], header, BY_KEY) == [Run(BASE, BASE + 2, None)], (
        "nothing can be read"
    )
