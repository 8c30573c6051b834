"""Metrics: what a scrape shows, what labels may grow to."""

import subprocess
import sys

import pytest

from gateway.metrics import LABEL_SETS_MAX, Metrics


def scrape(metrics: Metrics) -> list[str]:
    lines = metrics.render().decode().splitlines()
    return [line for line in lines if not line.startswith(("#", "process_"))]


def test_gauges_and_counters_are_read_at_each_scrape() -> None:
    facts = {"open": 3, "sent": 70}
    metrics = Metrics()
    metrics.gauge("headgate_open", "Open things.", lambda: facts["open"])
    metrics.counter_fn("headgate_sent_total", "Sent things.", lambda: facts["sent"])
    assert scrape(metrics) == ["headgate_open 3.0", "headgate_sent_total 70.0"]
    facts.update(open=2, sent=71)
    assert scrape(metrics) == ["headgate_open 2.0", "headgate_sent_total 71.0"]


def test_a_counter_counts_by_labels() -> None:
    metrics = Metrics()
    faults = metrics.counter("headgate_faults_total", "Faults.", ["protocol", "kind"])
    faults.inc("kafka", "bad crc")
    faults.inc("kafka", "bad crc", by=2)
    faults.inc("kafka", 'a "quote"\n')
    assert scrape(metrics) == [
        'headgate_faults_total{kind="bad crc",protocol="kafka"} 3.0',
        'headgate_faults_total{kind="a \\"quote\\"\\n",protocol="kafka"} 1.0',
    ]


def test_a_counter_without_labels_starts_at_zero() -> None:
    metrics = Metrics()
    metrics.counter("headgate_stops_total", "Stops.")
    assert scrape(metrics) == ["headgate_stops_total 0.0"]


def test_labels_that_do_not_fit_are_refused() -> None:
    counter = Metrics().counter("headgate_faults_total", "Faults.", ["kind"])
    with pytest.raises(ValueError, match="2 label values"):
        counter.inc("a", "b")


def test_label_sets_are_bounded_and_the_rest_counts_as_other() -> None:
    metrics = Metrics()
    faults = metrics.counter("headgate_faults_total", "Faults.", ["kind"])
    for number in range(LABEL_SETS_MAX + 5):
        faults.inc(str(number))
    lines = scrape(metrics)
    assert len(lines) == LABEL_SETS_MAX + 1
    assert 'headgate_faults_total{kind="other"} 5.0' in lines


def test_a_gauge_with_too_many_labels_is_cut() -> None:
    metrics = Metrics()
    samples = [((str(number),), 1.0) for number in range(LABEL_SETS_MAX + 7)]
    metrics.gauges("headgate_lag", "Lag.", ["group"], lambda: samples)
    lines = scrape(metrics)
    assert len(lines) == LABEL_SETS_MAX + 1
    assert lines[-1] == 'headgate_lag{group="other"} 7.0'


def test_a_histogram_counts_at_and_below_each_bound() -> None:
    metrics = Metrics()
    sync = metrics.histogram("headgate_sync_seconds", "Syncs.", [0.1, 0.01])
    for value in (0.01, 0.05, 3.0):
        sync.observe(value)
    assert scrape(metrics) == [
        'headgate_sync_seconds_bucket{le="0.01"} 1.0',
        'headgate_sync_seconds_bucket{le="0.1"} 2.0',
        'headgate_sync_seconds_bucket{le="+Inf"} 3.0',
        "headgate_sync_seconds_count 3.0",
        "headgate_sync_seconds_sum 3.06",
    ]


@pytest.mark.parametrize("name", ["open", "headgate_Open", "headgate_"])
def test_a_name_outside_of_the_scheme_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="metric"):
        Metrics().gauge(name, "Open things.", lambda: 0)


def test_a_name_is_registered_once() -> None:
    metrics = Metrics()
    metrics.gauge("headgate_open", "Open things.", lambda: 0)
    with pytest.raises(ValueError, match="there already"):
        metrics.counter("headgate_open", "Again.")


def test_nothing_is_imported_for_metrics_before_the_first_scrape() -> None:
    code = "import sys, gateway.metrics; print('prometheus_client' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
