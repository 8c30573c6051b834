"""Queue URLs of every style mean the same queue; ARNs too."""

import pytest

from adapters.sqs.errors import INVALID_ADDRESS, SqsError
from adapters.sqs.queues.urls import (
    URL_CHARS_MAX,
    QueueAddress,
    format_queue_arn,
    format_queue_url,
    parse_queue_arn,
    parse_queue_url,
)

ACCOUNT = "123456789012"


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://127.0.0.1:9324/123456789012/jobs", (ACCOUNT, "", "jobs")),
        ("https://example.org/123456789012/jobs/", (ACCOUNT, "", "jobs")),
        (
            "http://sqs.eu-west-1.localhost.localstack.cloud:4566/123456789012/jobs",
            (ACCOUNT, "eu-west-1", "jobs"),
        ),
        (
            "https://sqs.us-east-2.amazonaws.com/123456789012/jobs.fifo",
            (ACCOUNT, "us-east-2", "jobs.fifo"),
        ),
        (
            "http://eu-west-1.queue.localhost:9324/123456789012/jobs",
            (ACCOUNT, "eu-west-1", "jobs"),
        ),
        (
            "http://localhost:9324/queue/eu-west-1/123456789012/jobs",
            (ACCOUNT, "eu-west-1", "jobs"),
        ),
        ("http://localhost:9324/queue/jobs", ("", "", "jobs")),
        ("http://localhost:9324/jobs", ("", "", "jobs")),
        ("http://[::1]:9324/123456789012/jobs", (ACCOUNT, "", "jobs")),
        ("/123456789012/jobs", (ACCOUNT, "", "jobs")),
        ("jobs", ("", "", "jobs")),
        ("jobs.fifo", ("", "", "jobs.fifo")),
    ],
)
def test_every_style_is_understood(url: str, address: tuple[str, str, str]) -> None:
    assert parse_queue_url(url) == QueueAddress(*address)


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:9324/",
        "http://localhost:9324",
        "http:///123456789012/jobs",
        "http://localhost/1234/jobs",
        "http://localhost/123456789012/jobs/more",
        "http://localhost/queue/eu-west-1/123456789012/",
        "http://[/123456789012/jobs",
        "/",
        "http://localhost/123456789012/" + "j" * URL_CHARS_MAX,
    ],
)
def test_what_names_no_queue_is_an_invalid_address(url: str) -> None:
    with pytest.raises(SqsError) as caught:
        parse_queue_url(url)
    assert caught.value.code is INVALID_ADDRESS


@pytest.mark.parametrize(
    ("base_url", "region", "url"),
    [
        ("http://h:1", "us-east-1", "http://h:1/123456789012/jobs"),
        ("http://h:1", "eu-west-1", "http://h:1/queue/eu-west-1/123456789012/jobs"),
        ("http://sqs.eu-west-1.h:1", "eu-west-1", "http://sqs.eu-west-1.h:1/123456789012/jobs"),
        (
            "http://sqs.eu-west-1.h:1",
            "us-east-1",
            "http://sqs.eu-west-1.h:1/queue/us-east-1/123456789012/jobs",
        ),
        ("https://sqs.eu-west-1.h", "eu-west-1", "https://sqs.eu-west-1.h/123456789012/jobs"),
    ],
)
def test_a_url_that_is_given_out_leads_back_to_its_queue(
    base_url: str, region: str, url: str
) -> None:
    address = QueueAddress(ACCOUNT, region, "jobs")

    made = format_queue_url(base_url, address, default_region="us-east-1")

    assert made == url
    account, found_region, name = parse_queue_url(made)
    assert (account, found_region or "us-east-1", name) == address


def test_an_arn_leads_back_to_its_queue() -> None:
    address = QueueAddress(ACCOUNT, "eu-west-1", "jobs.fifo")
    assert format_queue_arn(address) == "arn:aws:sqs:eu-west-1:123456789012:jobs.fifo"
    assert parse_queue_arn(format_queue_arn(address)) == address


@pytest.mark.parametrize(
    "arn",
    [
        "", "jobs", "arn:aws:sns:us-east-1:123456789012:jobs", "arn:aws:sqs:us-east-1:1:jobs",
        "arn:aws:sqs::123456789012:jobs", "arn:aws:sqs:us-east-1:123456789012:",
        "arn:aws:sqs:us-east-1:123456789012:jobs:more",
        "arn:aws:sqs:us-east-1:123456789012:" + "j" * URL_CHARS_MAX,
    ],
)  # fmt: skip
def test_what_is_no_arn_of_a_queue_names_none(arn: str) -> None:
    assert parse_queue_arn(arn) is None
