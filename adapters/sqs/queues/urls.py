"""Queue URLs and ARNs: parsing of all styles that clients send, formatting of one.

    style        example (account 000000000000, queue "jobs")
    path         http://127.0.0.1:9324/000000000000/jobs
    by region    http://127.0.0.1:9324/queue/eu-west-1/000000000000/jobs
    standard     http://sqs.eu-west-1.localhost:9324/000000000000/jobs
    old          http://eu-west-1.queue.localhost:9324/000000000000/jobs
    no account   http://127.0.0.1:9324/queue/jobs
    bare         jobs

Pure. Names are not checked here; an unknown one is not found later.
"""

import re
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from adapters.sqs.errors import INVALID_ADDRESS, SqsError
from adapters.sqs.text import is_account

URL_CHARS_MAX: Final = 2_048
_ARN_PREFIX: Final = "arn:aws:sqs:"
_URLS_CACHED_MAX: Final = 8_192  # parsed URLs
_BASE_URLS_CACHED_MAX: Final = 256
_REGION: Final = re.compile(r"[a-z]{2}(?:-[a-z]+)+-[0-9]{1,2}")
_SHOWN_CHARS: Final = 200


class QueueAddress(NamedTuple):
    """Account, region and name of a queue; empty account or region: the caller's."""

    account: str
    region: str
    name: str


@lru_cache(maxsize=_URLS_CACHED_MAX)
def parse_queue_url(url: str) -> QueueAddress:
    """Return the address in a URL, a path or a bare name. Errors: ``SqsError``.

    >>> parse_queue_url("http://sqs.eu-west-1.localhost:9324/000000000000/jobs")
    QueueAddress(account='000000000000', region='eu-west-1', name='jobs')
    """
    if len(url) > URL_CHARS_MAX:
        raise _invalid(url)
    if "/" not in url:
        return QueueAddress("", "", url)
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        raise _invalid(url) from None
    if "://" in url and not host:
        raise _invalid(url)
    steps = unquote(parts.path).strip("/").split("/")
    region = _region_of_host(host)
    match steps:
        case ["queue", name] if name:
            return QueueAddress("", region, name)
        case ["queue", path_region, account, name] if is_account(account) and name:
            return QueueAddress(account, path_region, name)
        case [account, name] if is_account(account) and name:
            return QueueAddress(account, region, name)
        case [name] if name:
            return QueueAddress("", region, name)
    raise _invalid(url)


def is_region(text: str) -> bool:
    """Return whether a text has the form of a region's name."""
    return _REGION.fullmatch(text) is not None


def is_of_host(url: str, base_url: str) -> bool:
    """Return whether a URL has the host of ``base_url``; True for a text without a host."""
    try:
        host = urlsplit(url).hostname
    except ValueError:
        return True  # it has no host
    return not host or host == _host_of(base_url)


def _region_of_host(host: str) -> str:
    """Return the region in ``sqs.<region>.host`` or ``<region>.queue.host``, or an empty text."""
    labels = host.split(".")
    if len(labels) > 2 and labels[0] == "sqs":  # noqa: PLR2004 - sqs, region and a host
        return labels[1]
    if len(labels) > 2 and labels[1] == "queue":  # noqa: PLR2004
        return labels[0]
    return ""


@lru_cache(maxsize=_BASE_URLS_CACHED_MAX)
def _host_of(base_url: str) -> str:
    return urlsplit(base_url).hostname or ""


def format_queue_url(base_url: str, address: QueueAddress, *, default_region: str) -> str:
    """Return a queue's URL; its path has the region unless the host implies it."""
    implied_region = _region_of_host(_host_of(base_url)) or default_region
    if address.region == implied_region:
        return f"{base_url}/{address.account}/{address.name}"
    return f"{base_url}/queue/{address.region}/{address.account}/{address.name}"


def parse_queue_arn(arn: str) -> QueueAddress | None:
    """Return the address in an ARN, or None if it is no queue's ARN.

    >>> parse_queue_arn("arn:aws:sqs:us-east-1:000000000000:jobs")
    QueueAddress(account='000000000000', region='us-east-1', name='jobs')
    """
    if not arn.startswith(_ARN_PREFIX) or len(arn) > URL_CHARS_MAX:
        return None
    parts = arn.removeprefix(_ARN_PREFIX).split(":")
    if len(parts) != 3 or not all(parts) or not is_account(parts[1]):  # noqa: PLR2004 - see above
        return None
    return QueueAddress(account=parts[1], region=parts[0], name=parts[2])


def format_queue_arn(address: QueueAddress) -> str:
    """Return a queue's ARN."""
    return f"{_ARN_PREFIX}{address.region}:{address.account}:{address.name}"


def _invalid(url: str) -> SqsError:
    return SqsError(
        INVALID_ADDRESS, f"The address {url[:_SHOWN_CHARS]} is not valid for this endpoint."
    )
