"""Two builds of Headgate in turn: server CPU per message of K1, M1 to M4, S1 and S2.

``--before`` names the checkout of the other build; its ``.venv`` must have what it needs.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from benchmarks import (
    k1_produce,
    m1_qos0,
    m2_qos1,
    m3_fanout,
    m4_connections,
    s1_send,
    s2_batches,
)
from benchmarks.mqtt.report import MqttReport
from benchmarks.mqtt.sides import GROUP, MqttGateway, MqttSide, client_sample
from benchmarks.report import Ratio, Row, Sample
from benchmarks.rounds import OneSide, measured, rows_of
from benchmarks.sides import OURS, Options, Side, temporary_folder
from benchmarks.sqs import sides as sqs
from tests.support.gateway import Gateway
from tests.support.process_usage import cpu_s
from tests.support.toolchain import ROOT

S = TypeVar("S", bound=OneSide)

BEFORE: Final = "before"
BAR: Final = 1.03
CPU: Final = "server CPU us/msg"


def run(options: Options) -> MqttReport:
    """Measure both builds in turn, and compare medians of CPU time per message."""
    if options.before is None:
        sys.exit("compare needs --before CHECKOUT, the other build's tree")
    checkouts = {BEFORE: options.before.resolve(), OURS: ROOT}
    rows = [
        *_kafka(options, checkouts),
        *_mqtt(options, checkouts),
        *_sqs(options, checkouts),
    ]
    seconds = options.scaled(m4_connections.SECONDS)
    return MqttReport(
        "compare",
        "Two builds in turn: server CPU per message",
        rows,
        [_ratio(case, rows) for case in dict.fromkeys(row.case for row in rows)],
        [f"{seconds} s a run, flush=group (K1 never); server CPU per message, lower is better"],
    )


def _kafka(options: Options, checkouts: dict[str, Path]) -> list[Row]:
    records = options.scaled(k1_produce.RECORDS)
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        found = []
        for name, checkout in checkouts.items():
            server = Gateway(folder / name, {"storage.flush": "never", "log.level": "warning"})
            server.checkout = checkout
            found.append(Side(name, "flush=never", stack.enter_context(server)))
        return _rows(found, {"K1 produce": partial(_produce, records=records)}, options.runs)


def _produce(side: Side, *, records: int) -> Sample:
    before_s = cpu_s(side.server.pid)
    sample = k1_produce.produce(side, records)
    used_us = (cpu_s(side.server.pid) - before_s) * 1e6
    return Sample(sample.value, {**sample.extra, CPU: used_us / records})


def _mqtt(options: Options, checkouts: dict[str, Path]) -> list[Row]:
    seconds = ["--seconds", options.scaled(m4_connections.SECONDS)]
    flows = {
        "M1 QoS 0": ["mqtt_flow", "--ahead", m1_qos0.AHEAD],
        "M2 QoS 1": [
            "mqtt_flow",
            *("--qos", 1, "--window", m2_qos1.WINDOW, "--ahead", m2_qos1.AHEAD),
        ],
        "M3 1 to 10": [
            "mqtt_flow",
            *("--ahead", m3_fanout.AHEAD, "--subscribers", m3_fanout.SUBSCRIBERS),
        ],
        "M4 200 connections": [
            "mqtt_one_in_flight",
            "--connections",
            m4_connections.CONNECTIONS,
        ],
    }
    with _started(checkouts) as found:
        return _rows(
            found,
            {name: partial(_client, place=[*place, *seconds]) for name, place in flows.items()},
            options.runs,
        )


def _client(side: MqttSide, *, place: Sequence[object]) -> Sample:
    module, *arguments = place
    return client_sample(side, str(module), *arguments)


def _sqs(options: Options, checkouts: dict[str, Path]) -> list[Row]:
    seconds = options.scaled(s1_send.SECONDS)
    works: dict[str, Callable[[sqs.SqsSide], Sample]] = {
        "S1 send": partial(s1_send.send, seconds=seconds),
        "S2 send": partial(s2_batches.send, seconds=seconds),
        "S2 receive + delete": partial(
            s2_batches.drain, messages=options.scaled(s2_batches.MESSAGES)
        ),
    }
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        found = [
            stack.enter_context(
                sqs.gateway(folder / name, "group", name=name, checkout=checkout)
            )
            for name, checkout in checkouts.items()
        ]
        return _rows(found, works, options.runs)


def _rows(found: Sequence[S], works: dict[str, Callable[[S], Sample]], runs: int) -> list[Row]:
    rows: list[Row] = []
    for case, work in works.items():
        rows += rows_of(case, "msg/s", measured(found, work, runs=runs))
    return rows


@contextmanager
def _started(checkouts: dict[str, Path]) -> Iterator[list[MqttSide]]:
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        found = []
        for name, checkout in checkouts.items():
            server = MqttGateway(folder / name, {"storage.flush": "group"})
            server.checkout = checkout
            stack.enter_context(server)
            found.append(MqttSide(name, GROUP, server))
        yield found


def _ratio(case: str, rows: Sequence[Row]) -> Ratio:
    now, before = (
        next(row for row in rows if (row.case, row.side) == (case, side)).besides(CPU)
        for side in (OURS, BEFORE)
    )
    assert now is not None
    assert before is not None
    return Ratio(f"{case}: CPU now / before", now / before, BAR, at_most=True)
