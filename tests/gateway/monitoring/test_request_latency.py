"""Histograms of latency: one per API; sampled ones time one request at a time."""

from gateway.monitoring.request_latency import RequestLatency


def counts(latency: RequestLatency) -> dict[str, float]:
    return {api: histogram.buckets()[-1][1] for api, histogram in latency.samples()}


def test_each_api_has_a_histogram() -> None:
    latency = RequestLatency()
    latency.observe("Produce", 0.002)
    latency.observe("Produce", 0.2)
    latency.observe("Fetch", 0.1)

    found = dict(latency.samples())
    assert counts(latency) == {"Produce": 2, "Fetch": 1}
    assert dict(found["Produce"].buckets())["0.0025"] == 1


def test_one_request_at_a_time_is_sampled() -> None:
    latency = RequestLatency()
    done: list[object] = []
    first = latency.sampled("PUBLISH", done.append)
    second = latency.sampled("PUBLISH", done.append)

    second("second")
    first("first")
    latency.sampled("PUBLISH", done.append)("third")

    assert done == ["second", "first", "third"]
    assert counts(latency) == {"PUBLISH": 2}


def test_a_request_that_never_ends_is_given_up_at_a_scrape() -> None:
    latency = RequestLatency()
    latency.sampled("PUBLISH", print)

    latency.samples()
    latency.sampled("PUBLISH", lambda: None)()

    assert counts(latency) == {"PUBLISH": 1}
