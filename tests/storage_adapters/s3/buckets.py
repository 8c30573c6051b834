"""Buckets with any settings, closed at the end of a test."""

import contextlib
from collections.abc import Callable, Iterator

from gateway.clock import SystemClock
from storage_adapters.s3.bucket import Bucket
from storage_adapters.s3.config import S3Config
from tests.support.s3_servers import S3Server
from tests.support.waiting import wait_until

MIB = 1024 * 1024
PART = 5 * MIB  # the smallest that S3 takes
WITHIN_S = 60

Opened = Callable[..., Bucket]


@contextlib.contextmanager
def opening(server: S3Server, **base: object) -> Iterator[Opened]:
    """Yield what opens a bucket with ``base`` and settings of its own."""
    fixed = {
        "bucket": server.bucket,
        "endpoint_url": server.endpoint_url,
        "addressing": "path",
        "multipart_bytes": PART,
        **base,
    }
    with contextlib.ExitStack() as stack:

        def opened(**settings: object) -> Bucket:
            config = S3Config.model_validate({**fixed, **settings})
            return stack.enter_context(contextlib.closing(Bucket(config, SystemClock())))

        yield opened


def keys_of(server: S3Server, prefix: str) -> list[str]:
    """Return the keys of the objects that are there."""
    with contextlib.closing(server.client()) as client:
        answer = client.list_objects_v2(Bucket=server.bucket, Prefix=prefix)
    return [row["Key"] for row in answer.get("Contents", [])]


def uploads_of(server: S3Server, prefix: str) -> list[str]:
    """Return the keys of uploads that were begun and neither completed nor aborted."""
    with contextlib.closing(server.client()) as client:
        answer = client.list_multipart_uploads(Bucket=server.bucket)
    keys: list[str] = [row["Key"] for row in answer.get("Uploads", [])]
    return [key for key in keys if key.startswith(prefix)]


def wait_for_tries(bucket: Bucket, is_done: Callable[[], bool], count: int) -> None:
    """Return when so many requests were made again, and the call still is not done."""
    wait_until(
        lambda: is_done() or sum(bucket.statistics.retries.values()) >= count,
        within_s=WITHIN_S,
        what=f"{count} tries",
    )
    assert not is_done()
