"""Start of traces, where the config has them. What they need is an extra."""

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from importlib import import_module

from gateway.clock import Clock
from gateway.config.settings import Settings
from gateway.errors import InvalidSettings
from gateway.installation import install_command, installed_version
from gateway.metrics import Metrics
from gateway.writer import Writer


def start_tracing(
    writer: Writer, clock: Clock, settings: Settings, metrics: Metrics, stack: AsyncExitStack
) -> None:
    """Give the writer its tracer, if ``otel.endpoint`` is set; ``stack`` stops it.

    Error: ``InvalidSettings`` without the extra, or when a file of the config cannot be read.
    """
    config = settings.otel
    if not config.endpoint:
        return
    try:
        otlp = import_module("gateway.tracing.otlp")
    except ModuleNotFoundError as error:
        msg = f"otel.endpoint: needs the extra otel: {install_command('otel')}"
        raise InvalidSettings(msg) from error
    tracer = import_module("gateway.tracing.tracer")
    span_exporter = import_module("gateway.tracing.span_exporter")
    resource = {
        "service.name": config.service_name,
        "service.version": installed_version(),
        "service.instance.id": str(settings.node.node_id),
    }
    try:
        exporter = span_exporter.SpanExporter(
            config, partial(otlp.encode_spans, resource=resource)
        )
    except OSError as error:
        raise InvalidSettings(f"otel.authorization_file: {error}") from error
    metrics.counter_fn("headgate_spans_exported", "Spans sent.", lambda: exporter.exported)
    metrics.counters_fn(
        "headgate_spans_dropped",
        "Spans dropped, by reason.",
        ("reason",),
        lambda: [
            ((reason,), exporter.dropped[reason]) for reason in ("queue_full", "receiver")
        ],
    )
    exporter.start()
    stack.push_async_callback(asyncio.to_thread, exporter.stop)
    writer.tracer = tracer.Tracer(clock, config, exporter.submit)
