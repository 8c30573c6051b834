"""The bucket on bad days: a proxy before a real server does what networks and servers do."""

import os
from collections.abc import Iterator
from unittest.mock import patch

import pytest

from storage_adapters.s3.bucket import Bucket, BucketUnavailable, KeyTaken, ObjectStat
from tests.storage_adapters.s3.buckets import MIB, Opened, keys_of, uploads_of
from tests.support.s3_proxy import (
    Answer,
    Cut,
    CutBody,
    Fault,
    FlipSent,
    Hang,
    IgnoreRange,
    LoseAnswer,
    S3Proxy,
    SlowBody,
)
from tests.support.s3_servers import S3Server, versitygw

pytestmark = pytest.mark.go

_SLOW_DOWN = Answer(503, "SlowDown")
_BYTES = b"0123456789" * 100


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with versitygw(tmp_path_factory.mktemp("s3")) as run, patch.dict(os.environ, run.env):
        yield run


# Again.


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Answer(500, "InternalError"), "server"),
        (_SLOW_DOWN, "slow_down"),
        (Answer(429, "TooManyRequests"), "slow_down"),
        (Answer(502, "", body="<html>no gateway</html>"), "server"),
        (Answer(409, "ConditionalRequestConflict"), "conflict"),
        (Cut(), "connection"),
    ],
)
def test_every_request_is_made_again(
    bucket: Bucket, proxy: S3Proxy, key: str, fault: Fault, reason: str
) -> None:
    rules = [proxy.add(fault, method=method, times=2) for method in ("PUT", "GET", "POST")]

    etag = bucket.put(key, [_BYTES])
    data = bucket.get(key, 10, 20)
    left = bucket.delete([key])

    assert (etag, data, left) == ("427008b3fe192f663d665f56cd75716c", b"0123456789", [])
    assert [rule.hits for rule in rules] == [2, 2, 2]
    assert bucket.statistics.retries == {reason: 6}


def test_listings_and_heads_are_made_again(bucket: Bucket, proxy: S3Proxy, key: str) -> None:
    etag = bucket.put(key, [_BYTES])
    proxy.add(_SLOW_DOWN, method="GET", times=2)
    proxy.add(Answer(503, "", body=""), method="HEAD", times=1)

    assert list(bucket.list(key)) == [ObjectStat(key, len(_BYTES), etag)]
    assert bucket.head(key) == ObjectStat(key, len(_BYTES), etag)
    assert bucket.statistics.retries == {"slow_down": 3}


def test_a_listing_that_is_none_is_made_again(bucket: Bucket, proxy: S3Proxy, key: str) -> None:
    bucket.put(key, [_BYTES])
    proxy.add(Answer(200, "", body="<html"), method="GET", times=1)

    assert [stat.key for stat in bucket.list(key)] == [key]
    assert bucket.statistics.retries == {"server": 1}


def test_silence_ends_and_the_request_is_made_again(
    opened: Opened, proxy: S3Proxy, key: str
) -> None:
    # Silence for longer than all tries may take: there is a second one all the same.
    bucket = opened(request_timeout_ms=2_000, retry_ms_max=1_900)
    proxy.add(Hang(), method="PUT", times=1)
    proxy.add(Hang(), method="GET", times=1)

    bucket.put(key, [_BYTES])

    assert bucket.get(key, 0, 3) == b"012"
    assert bucket.statistics.retries == {"timeout": 2}


def test_a_body_that_breaks_off_is_got_again(bucket: Bucket, proxy: S3Proxy, key: str) -> None:
    bucket.put(key, [_BYTES])
    rule = proxy.add(CutBody(after=7), method="GET", times=2)

    assert bucket.get(key, 1, 900) == _BYTES[1:900]
    assert bucket.get_end(key, 100) == (_BYTES[-100:], len(_BYTES))
    assert rule.hits == 2
    assert bucket.statistics.retries == {"broken": 2}


def test_a_body_that_drips_is_got_again(opened: Opened, proxy: S3Proxy, key: str) -> None:
    bucket = opened(request_timeout_ms=2_000)
    bucket.put(key, [_BYTES])
    proxy.add(SlowBody(bytes_per_s=100), method="GET", times=1)  # ten seconds for all of it

    assert bucket.get(key, 0, 1_000) == _BYTES
    assert bucket.statistics.retries == {"timeout": 1}


def test_more_than_was_asked_for_is_not_taken(opened: Opened, proxy: S3Proxy, key: str) -> None:
    bucket = opened(retry_ms_max=200)
    bucket.put(key, [_BYTES])
    proxy.add(IgnoreRange(surplus_bytes=8 * MIB), method="GET")

    with pytest.raises(BucketUnavailable, match="bytes 0 to 8388618 came, not 0 to 10"):
        bucket.get(key, 0, 10)

    assert bucket.statistics.received_bytes == 0


def test_bytes_that_change_on_the_way_are_sent_again(
    bucket: Bucket, proxy: S3Proxy, key: str
) -> None:
    proxy.add(FlipSent(at=500), method="PUT", times=1)

    bucket.put(key, [_BYTES])

    assert bucket.get(key, 0, 1_000) == _BYTES
    assert bucket.statistics.retries == {"broken": 1}


# What may have been done.


def test_a_lost_answer_is_done(
    bucket: Bucket, server: S3Server, proxy: S3Proxy, key: str
) -> None:
    rule = proxy.add(LoseAnswer(), method="PUT", times=1)

    etag = bucket.put(key, [_BYTES])

    assert rule.hits == 1
    assert bucket.head(key) == ObjectStat(key, len(_BYTES), etag)
    assert keys_of(server, key) == [key]


def test_a_lost_answer_to_a_later_call_is_done(
    opened: Opened, proxy: S3Proxy, key: str
) -> None:
    bucket = opened(retry_ms_max=0)
    proxy.add(LoseAnswer(), method="PUT", times=1)
    with pytest.raises(BucketUnavailable):
        bucket.put(key, [_BYTES])

    etag = bucket.put(key, [_BYTES])

    assert bucket.head(key) == ObjectStat(key, len(_BYTES), etag)


def test_a_key_taken_while_the_answer_was_lost_stays_taken(
    bucket: Bucket, proxy: S3Proxy, key: str
) -> None:
    other = bytes(reversed(_BYTES))
    bucket.put(key, [other])
    proxy.add(LoseAnswer(), method="PUT", times=1)

    with pytest.raises(KeyTaken):
        bucket.put(key, [_BYTES])

    assert bucket.get(key, 0, len(other)) == other


def test_lost_answers_of_parts_are_done(
    bucket: Bucket, server: S3Server, proxy: S3Proxy, key: str
) -> None:
    data = b"".join(b"%015d " % i for i in range(6 * MIB // 16))
    parts = proxy.add(LoseAnswer(), method="PUT", times=1)
    completing = proxy.add(LoseAnswer(), method="POST", key="uploadId", times=1)

    etag = bucket.put(key, [data])

    assert (parts.hits, completing.hits) == (1, 1)
    assert bucket.head(key) == ObjectStat(key, len(data), etag)
    assert bucket.get(key, 0, len(data)) == data
    assert uploads_of(server, key) == []


def test_parts_are_dropped_when_the_rest_does_not_go(
    opened: Opened, server: S3Server, proxy: S3Proxy, key: str
) -> None:
    bucket = opened(retry_ms_max=200)
    proxy.add(_SLOW_DOWN, method="PUT", key="partNumber=2")

    with pytest.raises(BucketUnavailable, match=f"PUT {key}: SlowDown"):
        bucket.put(key, [bytes(6 * MIB)])

    assert uploads_of(server, key) == []
    assert keys_of(server, key) == []


def test_what_could_not_be_deleted_is_said(bucket: Bucket, proxy: S3Proxy, key: str) -> None:
    xml = (
        "<DeleteResult>"
        f"<Error><Key>{key}</Key><Code>InternalError</Code></Error>"
        "<Error><Key>gone</Key><Code>NoSuchKey</Code></Error></DeleteResult>"
    )
    proxy.add(Answer(200, "", body=xml), method="POST")

    assert bucket.delete([key, "gone", "other"]) == [key]
