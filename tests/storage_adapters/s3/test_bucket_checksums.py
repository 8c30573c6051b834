"""Checksums of requests that put, and the fallback for servers that do not know one."""

import base64
import contextlib
from collections.abc import Iterator
from uuid import uuid4

import pytest
from crc32c import crc32c

from storage_adapters.s3.bucket import Bucket, BucketRefused, ObjectStat
from tests.storage_adapters.s3.buckets import MIB, PART, Opened, keys_of, opening
from tests.support.s3_proxy import Answer, FlipSent, LoseAnswer, OtherHeaders, S3Proxy
from tests.support.s3_servers import S3Server, versitygw

pytestmark = pytest.mark.go

_BYTES = b"0123456789" * 100
_CRC, _MD5 = "x-amz-checksum-crc32c", "content-md5"
_OTHER_ETAG = OtherHeaders({"etag": f'"{"0" * 32}"'})
_NO_CRC = OtherHeaders({_CRC: ""})
_NEITHER = OtherHeaders({_CRC: "", "etag": '"no-digest"'})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with versitygw(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture
def proxy(server: S3Server) -> Iterator[S3Proxy]:
    with S3Proxy(server.endpoint_url) as running:
        yield running


@pytest.fixture
def opened(
    server: S3Server, proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Opened]:
    """Open a bucket behind the proxy with other settings."""
    for name, value in server.env.items():
        monkeypatch.setenv(name, value)
    with opening(server.behind(proxy.url), request_timeout_ms=10_000) as open_with:
        yield open_with


@pytest.fixture
def bucket(opened: Opened) -> Bucket:
    return opened()


@pytest.fixture
def key() -> str:
    return f"{uuid4().hex}/a"


def _sent(proxy: S3Proxy) -> list[str]:
    """Return the checksums of what was put, in order."""
    puts = [
        headers
        for (method, _), headers in zip(proxy.requests, proxy.headers, strict=True)
        if method == "PUT"
    ]
    return [name for headers in puts for name in (_CRC, _MD5) if name in headers]


def _crc(data: bytes) -> str:
    return base64.b64encode(crc32c(data).to_bytes(4, "big")).decode()


def test_a_server_that_knows_it_gets_a_crc(
    bucket: Bucket, server: S3Server, proxy: S3Proxy, key: str
) -> None:
    bucket.put(key, [_BYTES[:300], _BYTES[300:]])

    with contextlib.closing(server.client()) as client:
        kept = client.head_object(Bucket=server.bucket, Key=key, ChecksumMode="ENABLED")
    assert kept["ChecksumCRC32C"] == _crc(_BYTES)
    assert _sent(proxy) == [_CRC]


def test_parts_have_one_each_once_the_server_is_known(
    bucket: Bucket, proxy: S3Proxy, key: str
) -> None:
    data = b"".join(b"%015d " % i for i in range(6 * MIB // 16))

    before = bucket.put(key + "1", [data])
    bucket.put(key + "2", [_BYTES])
    after = bucket.put(key + "3", [data])

    assert before == after
    assert _sent(proxy) == [_MD5, _MD5, _CRC, _CRC, _CRC]
    assert bucket.get(key + "3", PART - 8, PART + 8) == data[PART - 8 : PART + 8]


@pytest.mark.parametrize("at", [0, 999])
def test_bytes_that_change_on_the_way_are_not_kept(
    bucket: Bucket, proxy: S3Proxy, key: str, at: int
) -> None:
    rule = proxy.add(FlipSent(at=at), method="PUT", times=1)

    bucket.put(key, [_BYTES])

    assert rule.hits == 1
    assert bucket.get(key, 0, 1_000) == _BYTES
    assert bucket.statistics.retries == {"broken": 1}
    assert _sent(proxy) == [_CRC, _CRC]


def test_a_wrong_crc_is_looked_into(bucket: Bucket, proxy: S3Proxy, key: str) -> None:
    proxy.add(OtherHeaders({_CRC: "AAAAAA=="}), method="PUT", times=1)

    etag = bucket.put(key, [_BYTES])

    assert bucket.head(key) == ObjectStat(key, len(_BYTES), etag)
    assert bucket.statistics.retries == {"wrong_checksum": 1}
    assert bucket.statistics.requests == {"put": 2, "head": 2}


def test_a_server_that_answers_with_none_is_believed_by_its_etag_and_gets_md5(
    bucket: Bucket, proxy: S3Proxy, key: str
) -> None:
    proxy.add(_NO_CRC, method="PUT")

    first = bucket.put(key, [_BYTES])
    second = bucket.put(key + "2", [_BYTES])

    assert first == second == "427008b3fe192f663d665f56cd75716c"
    assert _sent(proxy) == [_CRC, _MD5]
    assert bucket.statistics.retries == {}


def test_without_crc_and_digest_the_bytes_are_looked_at(
    bucket: Bucket, proxy: S3Proxy, key: str
) -> None:
    proxy.add(_NEITHER, method="PUT")
    proxy.add(_NEITHER, method="HEAD")

    etag = bucket.put(key, [_BYTES])
    bucket.put(key + "2", [_BYTES])

    assert etag == "no-digest"
    assert _sent(proxy) == [_CRC, _MD5, _MD5]
    assert bucket.statistics.requests == {"put": 3, "head": 1, "get": 1}
    assert bucket.statistics.retries == {"checksum_unknown": 1}


@pytest.mark.parametrize("code", ["NotImplemented", "InvalidArgument", "InvalidRequest"])
def test_a_server_that_refuses_it_gets_md5(
    bucket: Bucket, proxy: S3Proxy, key: str, code: str
) -> None:
    proxy.add(Answer(501, code), method="PUT", times=1)

    bucket.put(key, [_BYTES])
    bucket.put(key + "2", [_BYTES])

    assert _sent(proxy) == [_CRC, _MD5, _MD5]
    assert bucket.statistics.retries == {"checksum_unknown": 1}


def test_a_refusal_for_another_reason_is_one(
    bucket: Bucket, server: S3Server, proxy: S3Proxy, key: str
) -> None:
    proxy.add(Answer(501, "NotImplemented"), method="PUT")
    with pytest.raises(BucketRefused, match="conditional PUTs"):
        bucket.put(key, [_BYTES])
    assert _sent(proxy) == [_CRC, _MD5]

    proxy.clear()
    bucket.put(key, [_BYTES])

    assert keys_of(server, key) == [key]


def test_who_has_answered_with_one_is_not_doubted(
    bucket: Bucket, proxy: S3Proxy, key: str
) -> None:
    bucket.put(key, [_BYTES])
    proxy.add(Answer(400, "InvalidArgument"), method="PUT", times=1)

    with pytest.raises(BucketRefused, match="InvalidArgument"):
        bucket.put(key + "2", [_BYTES])
    bucket.put(key + "3", [_BYTES])

    assert _sent(proxy) == [_CRC, _CRC, _CRC]


def test_a_lost_answer_to_a_crc_is_done(bucket: Bucket, proxy: S3Proxy, key: str) -> None:
    proxy.add(LoseAnswer(), method="PUT", times=1)

    etag = bucket.put(key, [_BYTES])

    assert etag == "427008b3fe192f663d665f56cd75716c"
    assert (
        "get" not in bucket.statistics.requests
    )  # its ETag is a digest, and that of these bytes


# MD5, by configuration.


def test_md5_is_what_the_server_gets_when_it_is_set(
    opened: Opened, server: S3Server, proxy: S3Proxy, key: str
) -> None:
    opened(checksum="md5").put(key, [_BYTES])

    assert _sent(proxy) == [_MD5]
    assert keys_of(server, key) == [key]


def test_a_wrong_etag_is_looked_into(opened: Opened, proxy: S3Proxy, key: str) -> None:
    bucket = opened(checksum="md5")
    proxy.add(_OTHER_ETAG, method="PUT", times=1)

    etag = bucket.put(key, [_BYTES])

    assert bucket.head(key) == ObjectStat(key, len(_BYTES), etag)
    assert bucket.statistics.retries == {"wrong_checksum": 1}
    assert bucket.statistics.requests == {"put": 2, "head": 2}


def test_a_server_whose_etags_are_no_digests_is_believed_by_its_bytes(
    opened: Opened, proxy: S3Proxy, key: str
) -> None:
    bucket = opened(checksum="md5")
    proxy.add(_OTHER_ETAG, method="PUT")
    proxy.add(_OTHER_ETAG, method="HEAD")

    first = bucket.put(key, [_BYTES])
    second = bucket.put(key + "2", [_BYTES])

    assert first == second == "0" * 32
    assert bucket.statistics.requests == {"put": 3, "head": 1, "get": 1}
