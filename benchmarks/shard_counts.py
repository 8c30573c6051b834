"""A node of 64 shards beside one of 1, in turn: K1, K6, M9, S1 and R1, without a peer.

With 64 shards an internal topic has 64 partitions, so what one turn of the loop writes of groups,
sessions and queues is more batches.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks import k1_produce, k6_many_partitions, m9_held, r1_recovery, s1_send
from benchmarks.mqtt.report import MqttReport
from benchmarks.mqtt.sides import CONNECTIONS, GROUP, MqttGateway, MqttSide
from benchmarks.report import Ratio, Row, Sample
from benchmarks.rounds import measured, rows_of
from benchmarks.sides import Options, Side, temporary_folder
from benchmarks.sqs import sides as sqs
from tests.support.gateway import Gateway

COUNTS: Final = (1, 64)
BAR: Final = 0.03
GIB: Final = 1.0
NAMES: Final = {count: f"shards={count}" for count in COUNTS}
CPU: Final = ("server CPU us/msg", "server CPU s/GB")


def run(options: Options) -> MqttReport:
    """Measure both, and compare medians: rates, CPU time of the server, time of a start."""
    rows = [*_kafka(options), *_mqtt(options), *_sqs(options), *_recovery(options)]
    cases = dict.fromkeys(row.case for row in rows)
    return MqttReport(
        "shards",
        "64 shards beside 1, in turn",
        rows,
        [ratio for case in cases for ratio in _ratios(case, rows)],
        [f"a bar is {BAR:.0%}; R1 with {options.records(GIB) / 2**20:.2f} GiB and fewer runs"],
    )


def _settings(count: int, flush: str) -> dict[str, object]:
    return {"node.shards": count, "storage.flush": flush, "log.level": "warning"}


def _kafka(options: Options) -> Iterator[Row]:
    records = options.scaled(k1_produce.RECORDS)
    with _gateways("never") as found:
        work = partial(k1_produce.produce, records=records)
        yield from rows_of("K1 produce", "msg/s", measured(found, work, runs=options.runs))
    with _gateways("group") as found:
        for side in found:
            k6_many_partitions.create(side)
        for case, count in k6_many_partitions.PER_REQUEST.items():
            batches = partial(k6_many_partitions.batches, per_request=count)
            samples = measured(found, batches, runs=options.runs)
            yield from rows_of(f"K6 {case}", "batches/s", samples)


@contextmanager
def _gateways(flush: str) -> Iterator[list[Side]]:
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        yield [
            Side(
                name,
                f"flush={flush}",
                stack.enter_context(Gateway(folder / name, _settings(count, flush))),
            )
            for count, name in NAMES.items()
        ]


def _mqtt(options: Options) -> Iterator[Row]:
    place: list[object] = ["--connections", options.part(CONNECTIONS)]
    place += ["--seconds", options.scaled(m9_held.SECONDS)]
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        found = [
            MqttSide(name, GROUP, stack.enter_context(_mqtt_gateway(folder / name, count)))
            for count, name in NAMES.items()
        ]
        samples = measured(found, partial(m9_held.held, place=place), runs=options.runs)
        yield from rows_of("M9 10,000 held", "msg/s", samples)


def _mqtt_gateway(folder: Path, count: int) -> MqttGateway:
    return MqttGateway(folder, _settings(count, "group"))


def _sqs(options: Options) -> Iterator[Row]:
    seconds = options.scaled(s1_send.SECONDS)
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        found = [
            stack.enter_context(
                sqs.gateway(folder / name, "group", {"node.shards": count}, name=name)
            )
            for count, name in NAMES.items()
        ]
        samples = measured(found, partial(s1_send.send, seconds=seconds), runs=options.runs)
        yield from rows_of("S1 send", "msg/s", samples)


def _recovery(options: Options) -> Iterator[Row]:
    """Start again after a kill, each side with a folder of its own, one after the other."""
    topics, records = options.scaled(r1_recovery.TOPICS), options.records(GIB)
    ready: dict[int, list[Sample]] = {count: [] for count in COUNTS}
    grown: dict[int, list[Sample]] = {count: [] for count in COUNTS}
    for _ in range(max(1, options.runs // 2)):
        for count in COUNTS:
            settings = {"node.shards": count}
            seconds, grown_mb = r1_recovery.recovered(topics, records, settings)
            ready[count].append(Sample(seconds))
            grown[count].append(Sample(grown_mb))
    yield from _rows("R1 ready after kill -9", "s", ready)
    yield from _rows("R1 memory above idle", "MB", grown)


def _rows(case: str, unit: str, samples: Mapping[int, Sequence[Sample]]) -> Iterator[Row]:
    for count, name in NAMES.items():
        yield Row(case, name, "flush=never", unit, samples[count])


def _ratios(case: str, rows: Sequence[Row]) -> Iterator[Ratio]:
    one, many = (
        next(row for row in rows if (row.case, row.side) == (case, NAMES[count]))
        for count in COUNTS
    )
    is_cost = one.unit in {"s", "MB"}
    bar = 1 + BAR if is_cost else 1 - BAR
    yield Ratio(f"{case}: 64 / 1", many.median / one.median, bar, at_most=is_cost)
    name = next((name for name in CPU if one.besides(name)), None)
    if name is not None:
        before, now = one.besides(name), many.besides(name)
        assert before is not None
        assert now is not None
        yield Ratio(f"{case}, {name}: 64 / 1", now / before, 1 + BAR, at_most=True)
