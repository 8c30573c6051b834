"""Spans on their way to a receiver: kept in bounds, counted when dropped, never waited for."""

from functools import partial
from pathlib import Path

import pytest

from gateway.config.otel import OtelConfig
from gateway.testing.ports import free_port
from gateway.tracing.otlp import encode_spans
from gateway.tracing.span import Span
from gateway.tracing.span_exporter import SpanExporter
from gateway.tracing.trace_context import TraceContext
from tests.support.otlp_receiver import Receiver, receiving
from tests.support.waiting import wait_until

CONTEXT = TraceContext(bytes(range(16)), bytes(range(8)))


def span(number: int) -> Span:
    return Span("publish", CONTEXT, "orders", 3, number, 1_000, 2_000)


def exporter_to(url: str, **config: object) -> SpanExporter:
    return SpanExporter(
        OtelConfig.model_validate({"endpoint": url, **config}),
        partial(encode_spans, resource={"service.name": "broker"}),
    )


def test_a_span_arrives_with_its_parent_and_attributes(tmp_path: Path) -> None:
    secret = tmp_path / "authorization"
    secret.write_text("Bearer secret\n")
    with receiving() as receiver:
        exporter = exporter_to(receiver.url, authorization_file=secret)
        exporter.start()
        exporter.submit(span(7))
        exporter.stop()

    (found,) = receiver.spans
    assert (found.trace_id, found.parent_id) == (
        CONTEXT.trace_id.hex(),
        CONTEXT.span_id.hex(),
    )
    assert found.name == "publish orders"
    assert (found.begun_unix_ns, found.ended_unix_ns) == (1_000, 2_000)
    assert found.attributes["messaging.destination.name"] == "orders"
    assert found.attributes["messaging.headgate.offset"] == 7
    assert found.service == "broker"
    assert receiver.headers[0]["Authorization"] == "Bearer secret"
    assert (exporter.exported, exporter.dropped.total()) == (1, 0)


def test_many_spans_go_in_several_requests() -> None:
    with receiving() as receiver:
        exporter = exporter_to(receiver.url)
        for number in range(1_200):
            exporter.submit(span(number))
        exporter.start()
        exporter.stop()

    assert len(receiver.headers) == 3
    assert {one.attributes["messaging.headgate.offset"] for one in receiver.spans} == set(
        range(1_200)
    )
    assert len({one.span_id for one in receiver.spans}) == 1_200


def test_a_full_queue_drops_spans_and_counts_them() -> None:
    exporter = exporter_to("http://127.0.0.1:9/v1/traces", spans_queued_max=10)

    for number in range(25):
        exporter.submit(span(number))

    assert exporter.dropped == {"queue_full": 15}


@pytest.mark.parametrize("status", [400, 503])
def test_a_receiver_that_refuses_costs_the_spans_and_they_are_counted(status: int) -> None:
    with receiving() as receiver:
        receiver.status = status
        exporter = exporter_to(receiver.url)
        exporter.submit(span(1))
        exporter.start()
        exporter.stop()

    assert exporter.dropped == {"receiver": 1}


def test_after_a_failure_later_spans_arrive() -> None:
    with receiving() as receiver:
        receiver.status = 503
        exporter = exporter_to(receiver.url)
        exporter.start()
        exporter.submit(span(1))
        wait_until(
            lambda: exporter.dropped.total() == 1, within_s=30, what="the first is dropped"
        )
        receiver.status = 200
        exporter.submit(span(2))
        exporter.stop()

    assert [one.attributes["messaging.headgate.offset"] for one in receiver.spans] == [2]


def test_nobody_listening_is_a_failure_and_no_exception() -> None:
    exporter = exporter_to(f"http://127.0.0.1:{free_port()}/v1/traces")
    exporter.submit(span(1))
    exporter.start()
    exporter.stop()
    assert exporter.dropped == {"receiver": 1}


def test_a_receiver_that_never_answers_delays_neither_spans_nor_the_stop() -> None:
    with receiving() as receiver:
        receiver.may_answer.clear()
        exporter = exporter_to(receiver.url, spans_queued_max=5)
        exporter.start()
        _fill(exporter, receiver)
        exporter.stop()  # it would wait for a minute, if it waited for the answer
        assert exporter.dropped["queue_full"] > 0


def _fill(exporter: SpanExporter, receiver: Receiver) -> None:
    assert not receiver.may_answer.is_set()
    for number in range(100):
        exporter.submit(span(number))
