"""The bucket's bounds: time, connections, and credentials that have one of their own."""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch

import pytest

from gateway.clock import ManualClock
from storage_adapters.s3 import bucket_retries
from storage_adapters.s3.bucket import Bucket, BucketRefused, BucketUnavailable
from storage_adapters.s3.bucket_client import AT_ONCE_BYTES
from storage_adapters.s3.bucket_errors import TooSlow
from storage_adapters.s3.bucket_retries import Retrier
from tests.storage_adapters.s3.buckets import (
    MIB,
    WITHIN_S,
    Opened,
    wait_for_tries,
)
from tests.support.s3_proxy import Answer, S3Proxy
from tests.support.s3_servers import S3Server, versitygw

pytestmark = pytest.mark.go

_SLOW_DOWN = Answer(503, "SlowDown")
_BYTES = b"0123456789" * 100


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with versitygw(tmp_path_factory.mktemp("s3")) as run, patch.dict(os.environ, run.env):
        yield run


def test_tries_end_after_their_time(opened: Opened, proxy: S3Proxy, server: S3Server) -> None:
    bucket = opened(retry_ms_max=400)
    rule = proxy.add(_SLOW_DOWN)

    with pytest.raises(BucketUnavailable) as caught:
        bucket.get("orders/17", 0, 10)

    text = str(caught.value)
    assert text == (
        f"S3 at {proxy.url}, bucket {server.bucket!r}, GET orders/17: SlowDown: Said the proxy. "
        f"({rule.hits} tries)"
    )
    assert 2 <= rule.hits <= 400 / 50 + 1


def test_all_tries_together_have_one_bound() -> None:
    clock = ManualClock()
    retrier = Retrier(clock, ms_max=10_000, place="S3", renew=lambda: None)
    tries = 0

    def fail() -> None:
        nonlocal tries
        tries += 1
        clock.advance(4_000)
        raise TooSlow

    with pytest.raises(BucketUnavailable, match=r"^S3, GET a: .*\(4 tries\)$"):
        retrier.run("GET a", fail)  # the bound begins when the first has failed

    assert tries == 4


def test_everything_away_for_a_while_is_waited_for(
    bucket: Bucket, proxy: S3Proxy, key: str
) -> None:
    proxy.go_away()
    with ThreadPoolExecutor(1) as threads:
        put = threads.submit(bucket.put, key, [_BYTES])
        wait_for_tries(bucket, put.done, 3)
        proxy.come_back()
        put.result(WITHIN_S)

    assert bucket.get(key, 0, 10) == b"0123456789"
    assert set(bucket.statistics.retries) == {"connection"}


class Watched(threading.Event):
    """An event that tells when somebody waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_waited_for = threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        self.is_waited_for.set()
        return super().wait(timeout)


def test_stopping_ends_the_pauses_at_once(
    opened: Opened, proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for bound in ("PAUSE_MS_MIN", "PAUSE_MS_MAX"):  # longer than anybody waits here
        monkeypatch.setattr(bucket_retries, bound, 1_500 * WITHIN_S)
    bucket = opened(retry_ms_max=2_000 * WITHIN_S)
    stopped = Watched()
    monkeypatch.setattr(bucket._retrier, "_stopped", stopped)
    proxy.go_away()
    with ThreadPoolExecutor(1) as threads:
        put = threads.submit(bucket.put, "key", [_BYTES])
        assert stopped.is_waited_for.wait(WITHIN_S)

        bucket.stop()

        assert isinstance(put.exception(WITHIN_S), BucketUnavailable)
    tries = bucket.statistics.requests["put"]
    with pytest.raises(BucketUnavailable):
        bucket.put("key", [_BYTES])
    assert bucket.statistics.requests["put"] == tries + 1


def test_connections_are_used_again(bucket: Bucket, proxy: S3Proxy, key: str) -> None:
    for i in range(5):
        bucket.put(f"{key}{i}", [bytes(MIB)])
        bucket.get(f"{key}{i}", 0, MIB)
        bucket.get_end(f"{key}{i}", 1_000)

    assert proxy.connections == 1


def test_only_large_bodies_ask_before_they_are_sent(
    bucket: Bucket, proxy: S3Proxy, key: str
) -> None:
    bucket.put(key, [bytes(AT_ONCE_BYTES)])
    assert proxy.asked_first == 0

    bucket.put(key + "2", [bytes(AT_ONCE_BYTES + 1)])
    assert proxy.asked_first == 1


def test_as_many_connections_as_threads(bucket: Bucket, proxy: S3Proxy, key: str) -> None:
    bucket.put(key, [_BYTES])
    threads_count = 12
    start = threading.Barrier(threads_count)

    def get(at: int) -> bytes:
        start.wait()
        return bucket.get(key, at, at + 10)

    with ThreadPoolExecutor(threads_count) as threads:
        for _ in range(3):
            got = list(threads.map(get, range(threads_count)))
            assert got == [_BYTES[at : at + 10] for at in range(threads_count)]

    assert proxy.connections <= threads_count + 1


# Credentials.


@pytest.fixture
def credentials_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "credentials"
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    return file


@pytest.mark.parametrize("status", [400, 403])
def test_expired_credentials_are_read_anew(
    bucket: Bucket, server: S3Server, proxy: S3Proxy, credentials_file: Path, status: int
) -> None:
    file = credentials_file
    _write_credentials(file, "old-key", "old-secret")
    rule = proxy.add(Answer(status, "ExpiredToken"))
    with ThreadPoolExecutor(1) as threads:
        check = threads.submit(bucket.check)
        wait_for_tries(bucket, check.done, 2)

        _write_credentials(file, server.access_key, server.secret_key)
        wait_for_tries(bucket, check.done, sum(bucket.statistics.retries.values()) + 2)
        rule.off()

        check.result(WITHIN_S)
    assert set(bucket.statistics.retries) == {"credentials"}


def test_credentials_that_stay_expired_are_to_be_renewed(
    opened: Opened, server: S3Server, proxy: S3Proxy
) -> None:
    bucket = opened(retry_ms_max=200)
    proxy.add(Answer(403, "ExpiredToken"))

    with pytest.raises(
        BucketRefused, match=r"ExpiredToken: .*; renew the credentials$"
    ) as caught:
        bucket.put("key", [_BYTES])

    assert server.secret_key not in str(caught.value)


def test_what_is_not_allowed_is_not_tried_again(
    bucket: Bucket, proxy: S3Proxy, key: str
) -> None:
    rule = proxy.add(Answer(403, "AccessDenied"))

    with pytest.raises(BucketRefused, match=r"AccessDenied: .*; allow these credentials"):
        bucket.put(key, [_BYTES])

    assert rule.hits == 1


def test_a_server_without_conditions_is_refused(
    bucket: Bucket, proxy: S3Proxy, key: str
) -> None:
    proxy.add(Answer(501, "NotImplemented"), method="PUT")

    with pytest.raises(BucketRefused, match="use a server that knows conditional PUTs"):
        bucket.put(key, [_BYTES])


def _write_credentials(file: Path, key: str, secret: str) -> None:
    new = file.with_suffix(".new")
    new.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n")
    new.replace(file)
