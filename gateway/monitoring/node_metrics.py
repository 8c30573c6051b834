"""Metrics of the node: version, disk, certificates, latency of requests."""

import shutil
import sys
from collections.abc import Iterable, Mapping

from gateway.installation import installed_version
from gateway.kernel import Kernel, ProtocolAdapter
from gateway.listener import Listener
from gateway.metrics import HistogramSample, Metrics, Sample
from gateway.monitoring.request_latency import MeasuresLatency


def register_metrics(
    kernel: Kernel, adapters: Mapping[str, ProtocolAdapter], listeners: Mapping[str, Listener]
) -> None:
    """Register them; the disk is asked at each scrape."""
    metrics = kernel.metrics
    metrics.gauges(
        "headgate_build_info",
        "1; the version is a label.",
        ("version", "python"),
        lambda: [((installed_version(), sys.version.split()[0]), 1.0)],
    )
    data_dir = kernel.settings.node.data_dir
    metrics.gauge(
        "headgate_disk_free_bytes",
        "Free bytes of the file system of the data directory.",
        lambda: shutil.disk_usage(data_dir).free,
    )
    metrics.gauge(
        "headgate_disk_size_bytes",
        "Size of the file system of the data directory.",
        lambda: shutil.disk_usage(data_dir).total,
    )
    _register_listeners(metrics, listeners)
    _register_latency(metrics, adapters)


def _register_listeners(metrics: Metrics, listeners: Mapping[str, Listener]) -> None:
    def expiry() -> Iterable[Sample]:
        return [
            ((name,), listener.certificate_expiry_unix_s)
            for name, listener in listeners.items()
            if listener.certificate_expiry_unix_s is not None
        ]

    metrics.gauges(
        "headgate_certificate_expiry_timestamp_seconds",
        "Time at which a listener's certificate expires, in unix seconds.",
        ("listener",),
        expiry,
    )
    metrics.counters_fn(
        "headgate_connections_accepted",
        "Connections that were accepted.",
        ("protocol",),
        lambda: [((name,), listener.accepted) for name, listener in listeners.items()],
    )
    metrics.counters_fn(
        "headgate_connections_refused",
        "Connections that were closed at once: a limit was reached.",
        ("protocol",),
        lambda: [((name,), listener.refused) for name, listener in listeners.items()],
    )


def _register_latency(metrics: Metrics, adapters: Mapping[str, ProtocolAdapter]) -> None:
    measured = {
        name: adapter.latency
        for name, adapter in adapters.items()
        if isinstance(adapter, MeasuresLatency)
    }

    def histograms() -> Iterable[HistogramSample]:
        return [
            ((name, api), histogram)
            for name, latency in measured.items()
            for api, histogram in latency.samples()
        ]

    metrics.histograms(
        "headgate_request_seconds",
        "Seconds from a request to its answer, waits that the client asked for included.",
        ("protocol", "api"),
        histograms,
    )
