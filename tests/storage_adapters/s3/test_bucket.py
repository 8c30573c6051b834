"""The bucket on real servers: what is put is read, taken keys stay, errors say what to do."""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch
from uuid import uuid4

import pytest

from gateway.model import Buffer
from gateway.testing.ports import free_port
from storage_adapters.s3.bucket import (
    Bucket,
    BucketRefused,
    BucketUnavailable,
    KeyTaken,
    ObjectMissing,
    ObjectStat,
)
from storage_adapters.s3.bucket_client import make_client
from storage_adapters.s3.config import S3Config
from tests.storage_adapters.s3.buckets import MIB, PART, Opened, opening, uploads_of
from tests.support.s3_servers import SERVERS, S3Server

pytestmark = pytest.mark.xdist_group("s3-bucket")  # each server is started once


@pytest.fixture(
    scope="module", params=[pytest.param("versitygw", marks=pytest.mark.go), "moto"]
)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[S3Server]:
    started = SERVERS[request.param](tmp_path_factory.mktemp("s3"))
    with started as running, patch.dict(os.environ, running.env):
        yield running


@pytest.fixture
def opened(server: S3Server) -> Iterator[Opened]:
    with opening(server, retry_ms_max=300) as open_with:
        yield open_with


@pytest.fixture
def bucket(opened: Opened) -> Bucket:
    return opened()


@pytest.fixture
def prefix() -> str:
    return f"{uuid4().hex}/"


# Bytes.


def test_what_was_put_is_read_in_the_ranges_asked_for(bucket: Bucket, prefix: str) -> None:
    body: list[Buffer] = [b"0123", bytearray(b"456"), memoryview(b"-789-")[1:4]]

    etag = bucket.put(prefix + "a", body)

    assert etag == "781e5e245d69b566979b86e28d23f2c7"
    assert bucket.get(prefix + "a", 0, 10) == b"0123456789"
    assert bucket.get(prefix + "a", 3, 8) == b"34567"
    assert bucket.get(prefix + "a", 9, 10) == b"9"
    assert bucket.get(prefix + "a", 4, 4) == b""


def test_the_end_comes_with_the_size(bucket: Bucket, prefix: str) -> None:
    bucket.put(prefix + "a", [b"0123456789"])
    bucket.put(prefix + "empty", [])

    assert bucket.get_end(prefix + "a", 3) == (b"789", 10)
    assert bucket.get_end(prefix + "a", 10) == (b"0123456789", 10)
    assert bucket.get_end(prefix + "a", 11) == (b"0123456789", 10)
    assert bucket.get_end(prefix + "empty", 11) == (b"", 0)


def test_bytes_past_the_end_are_an_error(bucket: Bucket, prefix: str) -> None:
    bucket.put(prefix + "a", [b"0123456789"])

    with pytest.raises(BucketUnavailable, match="bytes 5 to 10 came, not 5 to 11"):
        bucket.get(prefix + "a", 5, 11)
    with pytest.raises(BucketUnavailable, match="InvalidRange"):
        bucket.get(prefix + "a", 10, 11)


def test_the_head_says_what_is_there(bucket: Bucket, prefix: str) -> None:
    etag = bucket.put(prefix + "a", [b"0123456789"])

    assert bucket.head(prefix + "a") == ObjectStat(prefix + "a", 10, etag)
    assert bucket.head(prefix + "b") is None


def test_a_missing_object_is_named(bucket: Bucket, server: S3Server, prefix: str) -> None:
    expected = f"S3 at {server.endpoint_url}, bucket {server.bucket!r}, GET {prefix}no"

    with pytest.raises(ObjectMissing, match=expected):
        bucket.get(prefix + "no", 0, 1)
    with pytest.raises(ObjectMissing, match=expected):
        bucket.get_end(prefix + "no", 1)


# Keys.


def test_a_taken_key_stays_as_it_is(bucket: Bucket, prefix: str) -> None:
    bucket.put(prefix + "a", [b"first"])

    with pytest.raises(KeyTaken, match="another object has that key"):
        bucket.put(prefix + "a", [b"second"])
    with pytest.raises(KeyTaken):
        bucket.put(prefix + "a", [b"other"])  # as long as the first

    assert bucket.get_end(prefix + "a", 100) == (b"first", 5)


def test_the_same_bytes_again_are_done(bucket: Bucket, prefix: str) -> None:
    first = bucket.put(prefix + "a", [b"record"])

    assert bucket.put(prefix + "a", [b"rec", b"ord"]) == first


# moto looks and writes in two steps: of writers at the same time two may have it.
@pytest.mark.parametrize(
    "server", [pytest.param("versitygw", marks=pytest.mark.go)], indirect=True, scope="module"
)
def test_of_two_writers_of_a_key_one_has_it(bucket: Bucket, prefix: str) -> None:
    writers = 4
    start = threading.Barrier(writers)

    def write(key: str, data: bytes) -> bytes | None:
        start.wait()
        try:
            bucket.put(key, [data])
        except KeyTaken:
            return None
        return data

    with ThreadPoolExecutor(writers) as threads:
        for turn in range(10):
            key = f"{prefix}{turn}"
            tries = [threads.submit(write, key, b"writer %d" % i) for i in range(writers)]
            done = [data for one in tries if (data := one.result()) is not None]
            assert done == [bucket.get_end(key, 100)[0]]


def test_any_character_may_be_in_a_key(bucket: Bucket, prefix: str) -> None:
    keys = sorted(f"{prefix}{name}" for name in ("a b", "ä+%2F&=", "c/d e"))
    for key in keys:
        bucket.put(key, [key.encode()])

    assert [stat.key for stat in bucket.list(prefix)] == keys
    assert [bucket.get_end(key, 1_000)[0].decode() for key in keys] == keys
    assert bucket.delete(keys) == []
    assert list(bucket.list(prefix)) == []


# Parts.


def test_a_large_object_goes_in_parts(bucket: Bucket, server: S3Server, prefix: str) -> None:
    data = b"".join(b"%015d " % i for i in range(12 * MIB // 16))

    etag = bucket.put(prefix + "a", [data[:100], data[100 : 7 * MIB], data[7 * MIB :]])

    assert etag.endswith("-3")
    assert bucket.head(prefix + "a") == ObjectStat(prefix + "a", len(data), etag)
    assert bucket.get(prefix + "a", 0, len(data)) == data
    assert bucket.put(prefix + "a", [data]) == etag
    with pytest.raises(KeyTaken):
        bucket.put(prefix + "a", [data[:-1], b"!"])
    assert uploads_of(server, prefix) == []
    assert bucket.statistics.requests["part"] == 9
    assert bucket.statistics.requests["abort"] >= 1


def test_an_object_of_just_a_part_goes_at_once(bucket: Bucket, prefix: str) -> None:
    bucket.put(prefix + "a", [bytes(PART)])

    assert bucket.statistics.requests == {"put": 1}


# Listing and deleting.


def test_a_listing_goes_on_after_a_page(bucket: Bucket, prefix: str) -> None:
    keys = [f"{prefix}{i:04}" for i in range(1_003)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda key: bucket.put(key, [b"x"]), keys))
    bucket.put(prefix[:-1] + "~", [b"not below it"])

    assert [stat.key for stat in bucket.list(prefix)] == keys
    assert [stat.key for stat in bucket.list(prefix, start_after=keys[1])] == keys[2:]
    assert bucket.delete(keys) == []
    assert list(bucket.list(prefix)) == []


def test_what_is_missing_is_deleted(bucket: Bucket, prefix: str) -> None:
    bucket.put(prefix + "a", [b"x"])

    assert bucket.delete([prefix + "no", prefix + "a"]) == []
    assert bucket.head(prefix + "a") is None
    assert bucket.delete([]) == []


def test_requests_and_bytes_are_counted(bucket: Bucket, prefix: str) -> None:
    bucket.put(prefix + "a", [b"0123456789"])
    bucket.get(prefix + "a", 2, 5)
    bucket.get_end(prefix + "a", 4)
    bucket.head(prefix + "a")
    list(bucket.list(prefix))
    bucket.delete([prefix + "a"])

    found = bucket.statistics

    assert found.requests == {"put": 1, "get": 2, "head": 1, "list": 1, "delete": 1}
    assert (found.sent_bytes, found.received_bytes) == (10, 7)
    assert found.retries == {}


# Errors that somebody has to correct.


def test_a_good_bucket_passes_the_check(bucket: Bucket) -> None:
    bucket.check()


def test_a_bucket_that_is_not_there_is_said_to_be(opened: Opened, server: S3Server) -> None:
    bucket = opened(bucket="not-there")

    with pytest.raises(BucketRefused) as caught:
        bucket.check()

    text = str(caught.value)
    assert text.startswith(
        f"S3 at {server.endpoint_url}, bucket 'not-there', LIST: NoSuchBucket"
    )
    assert text.endswith("make the bucket, or correct storage.bucket")
    assert "\n" not in text


def test_a_server_that_is_not_there_is_named(opened: Opened) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    bucket = opened(endpoint_url=url)

    with pytest.raises(BucketUnavailable, match=f"S3 at {url}, .*: nobody answers there"):
        bucket.check()


@pytest.mark.go
@pytest.mark.parametrize("server", ["versitygw"], indirect=True)  # moto looks at no signatures
def test_a_wrong_secret_is_to_be_corrected_and_is_not_shown(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-secret-bytes")
    bucket = opened()

    with pytest.raises(BucketRefused) as caught:
        bucket.check()

    assert "SignatureDoesNotMatch" in str(caught.value)
    assert "correct the access key" in str(caught.value)
    assert "wrong-secret-bytes" not in str(caught.value)


def test_no_credentials_are_asked_for(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    bucket = opened()

    with pytest.raises(BucketRefused, match="no credentials; set AWS_ACCESS_KEY_ID"):
        bucket.check()


def test_a_profile_that_is_not_there_is_refused(opened: Opened) -> None:
    bucket = opened(profile="nobody")

    with pytest.raises(BucketRefused, match=r"correct storage\.profile"):
        bucket.check()


@pytest.mark.parametrize("url", ["not a url", "127.0.0.1:9000", "http://"])
def test_an_endpoint_that_is_no_url_is_refused(opened: Opened, url: str) -> None:
    bucket = opened(endpoint_url=url)

    with pytest.raises(BucketRefused, match=r"correct storage\.endpoint_url"):
        bucket.check()


def test_a_password_in_the_endpoint_is_not_shown(opened: Opened) -> None:
    url = f"http://me:hidden-word@127.0.0.1:{free_port()}"
    bucket = opened(endpoint_url=url)

    with pytest.raises(BucketUnavailable) as caught:
        bucket.check()

    assert "hidden-word" not in str(caught.value)


# Settings.


@pytest.mark.parametrize(
    ("addressing", "url"),
    [
        ("path", "https://s3.example.com/orders/key"),
        ("virtual", "https://orders.s3.example.com/key"),
    ],
)
def test_the_bucket_is_in_the_path_or_in_the_name(addressing: str, url: str) -> None:
    config = S3Config.model_validate(
        {
            "bucket": "orders",
            "endpoint_url": "https://s3.example.com",
            "region": "eu-west-3",
            "addressing": addressing,
        }
    )

    client = make_client(config)
    signed = client.generate_presigned_url("get_object", {"Bucket": "orders", "Key": "key"})
    client.close()

    assert signed.startswith(f"{url}?")
    assert "eu-west-3" in signed


def test_a_profile_gives_itskeys_of(
    opened: Opened, server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    file = tmp_path / "credentials"
    file.write_text(
        f"[of-the-log]\naws_access_key_id = {server.access_key}\n"
        f"aws_secret_access_key = {server.secret_key}\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))

    opened(profile="of-the-log").check()
