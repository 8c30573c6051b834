"""Client of the bucket: objects are put once and never changed, read in ranges, listed and deleted.

Every call waits for the network, so it is made in a thread. A request that fails is made again, as
``bucket_retries`` says; botocore's own tries are switched off, so that one place decides.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError, ClientError

from gateway.clock import Clock
from gateway.model import Buffer
from storage_adapters.s3.bucket_bodies import (
    Body,
    BodyPart,
    etag_of,
    parse_content_range,
    read_body,
)
from storage_adapters.s3.bucket_checksums import CRC32C, Checksums, row_of
from storage_adapters.s3.bucket_client import make_client
from storage_adapters.s3.bucket_errors import (
    EXPECTED,
    BodyBroken,
    BucketRefused,
    BucketUnavailable,
    KeyTaken,
    ObjectMissing,
    code_of,
)
from storage_adapters.s3.bucket_retries import Retrier, Statistics
from storage_adapters.s3.config import S3Config

__all__ = [
    "Bucket",
    "BucketRefused",
    "BucketUnavailable",
    "KeyTaken",
    "ObjectMissing",
    "ObjectStat",
]

DELETED_MAX: Final = 1_000  # keys in a request (Amazon S3 API Reference, DeleteObjects)
_COMPARED_BYTES: Final = 1024 * 1024  # at a time

_Answer: TypeAlias = dict[str, Any]
_Keys: TypeAlias = list[str]  # since ``list`` is a method below


class ObjectStat(NamedTuple):
    """An object in the bucket. ``etag`` is without quotes."""

    key: str
    size_bytes: int
    etag: str


class Bucket:
    """Bucket of any S3 server with conditional PUTs. Thread-safe.

    Keys are complete: callers add the configured prefix. Every call raises ``BucketUnavailable``
    after ``retry_ms_max`` of tries, and ``BucketRefused`` when a retry cannot help.
    """

    def __init__(self, config: S3Config, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        place = f"S3 at {_shown(config.endpoint_url)}, bucket {config.bucket!r}"
        self._place = place
        self._retrier = Retrier(
            clock, ms_max=config.retry_ms_max, place=place, renew=self._renew
        )
        self._lock = threading.Lock()
        self._made_client: Any = None
        self._checksums = Checksums(config.checksum)

    @property
    def statistics(self) -> Statistics:
        """Return the counts of requests since it was created."""
        return self._retrier.statistics()

    def stop(self) -> None:
        """End all pauses between tries: calls under way fail, new calls try once."""
        self._retrier.stop()

    def close(self) -> None:
        """Close the connections; no call may be made any more."""
        self.stop()
        self._renew()

    def check(self) -> None:
        """Check that the bucket exists and lists its objects."""
        # Not HeadBucket, whose error answers have no body with the reason.
        self._ask("list", self._config.prefix, "list_objects_v2", MaxKeys=1)

    def put(self, key: str, body: Sequence[Buffer]) -> str:
        """Put an object under a new key; return its ETag.

        An existing object with the same bytes is taken for ours, put by a request whose answer was
        lost. Errors: ``KeyTaken`` when the key has another object.
        """
        whole = Body(body, self._config.multipart_bytes)
        try:
            return (
                self._put_in_parts(key, whole) if whole.is_in_parts else self._put(key, whole)
            )
        except KeyTaken:
            found = self._ours(key, whole)
            if found is None:
                raise
            return found

    def get(self, key: str, start: int, end: int) -> bytes:
        """Return all bytes of [``start``, ``end``). Errors: ``ObjectMissing``."""
        if start == end:
            return b""

        def call() -> bytes:
            self._retrier.count("get")
            answer = self._client().get_object(
                Bucket=self._config.bucket, Key=key, Range=f"bytes={start}-{end - 1}"
            )
            found = parse_content_range(answer)
            if found[:2] != (start, end):
                answer["Body"].close()
                raise BodyBroken(f"bytes {found[0]} to {found[1]} came, not {start} to {end}")
            return self._read(answer, end - start)

        return self._retrier.run(f"GET {key}", call)

    def get_end(self, key: str, bytes_max: int) -> tuple[bytes, int]:
        """Return the last bytes, ``bytes_max`` at most, and the object's size.

        Errors: ``ObjectMissing``.
        """

        def call() -> tuple[bytes, int]:
            self._retrier.count("get")
            try:
                answer = self._client().get_object(
                    Bucket=self._config.bucket, Key=key, Range=f"bytes=-{bytes_max}"
                )
            except EXPECTED as error:
                if code_of(error) == "InvalidRange":  # the answer for an empty object, too
                    return b"", 0
                raise
            start, end, size = parse_content_range(answer)
            if (start, end) != (max(size - bytes_max, 0), size):
                answer["Body"].close()
                raise BodyBroken(f"bytes {start} to {end} of {size} came, not its end")
            return self._read(answer, end - start), size

        return self._retrier.run(f"GET {key}", call)

    def head(self, key: str) -> ObjectStat | None:
        """Return size and ETag of an object."""
        try:
            answer = self._ask("head", key, "head_object", Key=key)
        except ObjectMissing:
            return None
        return ObjectStat(key, int(answer["ContentLength"]), etag_of(answer))

    def delete(self, keys: Sequence[str]) -> _Keys:
        """Delete objects; return the keys that are left. Missing ones count as deleted."""
        left: _Keys = []
        for start in range(0, len(keys), DELETED_MAX):
            some = keys[start : start + DELETED_MAX]
            answer = self._ask(
                "delete",
                some[0],
                "delete_objects",
                Delete={"Objects": [{"Key": key} for key in some], "Quiet": True},
            )
            errors = answer.get("Errors", [])
            left += [row["Key"] for row in errors if row.get("Code") != "NoSuchKey"]
        return left

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectStat]:
        """Yield the objects under a key prefix, in order of keys. One request per 1,000."""
        while True:
            answer = self._ask(
                "list", prefix, "list_objects_v2", Prefix=prefix, StartAfter=start_after
            )
            rows = answer.get("Contents", [])
            for row in rows:
                yield ObjectStat(row["Key"], int(row["Size"]), etag_of(row))
            if not rows or not answer.get("IsTruncated"):
                return
            start_after = rows[-1]["Key"]

    # Requests.

    def _put(self, key: str, body: Body) -> str:
        def send(part: BodyPart, checksum: Mapping[str, str]) -> _Answer:
            return self._client().put_object(  # type: ignore[no-any-return]
                Bucket=self._config.bucket,
                Key=key,
                Body=body.open(part.start, part.end),
                ContentLength=body.size_bytes,
                IfNoneMatch="*",
                **checksum,
            )

        return etag_of(self._send("put", key, body, body.parts[0], send))

    def _put_in_parts(self, key: str, body: Body) -> str:
        kind = self._checksums.kind_of_parts
        told = {"ChecksumAlgorithm": "CRC32C"} if kind == CRC32C else {}
        answer = self._ask("create", key, "create_multipart_upload", Key=key, **told)
        upload: str = answer["UploadId"]
        try:
            return self._complete(key, upload, body, kind)
        except BaseException:
            self._abort(key, upload)
            raise

    def _complete(self, key: str, upload: str, body: Body, kind: str) -> str:
        def send(part: BodyPart, checksum: Mapping[str, str]) -> _Answer:
            return self._client().upload_part(  # type: ignore[no-any-return]
                Bucket=self._config.bucket,
                Key=key,
                UploadId=upload,
                PartNumber=part.number,
                Body=body.open(part.start, part.end),
                ContentLength=part.end - part.start,
                **checksum,
            )

        rows = []
        for part in body.parts:
            answer = self._send("part", key, body, part, send, kind)
            rows.append(row_of(part, answer))
        try:
            answer = self._ask(
                "complete",
                key,
                "complete_multipart_upload",
                Key=key,
                UploadId=upload,
                MultipartUpload={"Parts": rows},
                IfNoneMatch="*",
            )
        except (
            ObjectMissing
        ) as error:  # no such upload: a request without an answer completed it
            found = self._ours(key, body)
            if found is None:
                raise BucketUnavailable(f"{error}; the upload is begun anew") from error
            return found
        return etag_of(answer)

    def _abort(self, key: str, upload: str) -> None:
        """Abort the upload. A lifecycle rule of the bucket removes parts that stay."""
        try:
            self._client().abort_multipart_upload(
                Bucket=self._config.bucket, Key=key, UploadId=upload
            )
        except EXPECTED:
            return
        finally:
            self._retrier.count("abort")

    def _send(  # noqa: PLR0917 - what ``put`` and ``part`` share
        self,
        kind: str,
        key: str,
        body: Body,
        part: BodyPart,
        send: Callable[[BodyPart, Mapping[str, str]], _Answer],
        checksum_kind: str = "",
    ) -> _Answer:
        """Send a part or the whole body; return the answer after checking it."""
        checksums = self._checksums

        def call() -> _Answer:
            self._retrier.count(kind, sent=part.end - part.start)
            checksum = checksums.of(body, part, checksum_kind or checksums.kind)
            try:
                answer = send(part, {checksum.argument: checksum.text})
            except ClientError as error:
                checksums.note_refusal(error)
                raise
            checksums.check(body, part, checksum, answer)
            return answer

        return self._retrier.run(f"PUT {key}", call)

    def _ours(self, key: str, body: Body) -> str | None:
        """Return the ETag of the existing object, or None when its content differs."""
        stat = self.head(key)
        if stat is None or stat.size_bytes != body.size_bytes:
            return None
        if stat.etag == body.etag:
            return stat.etag
        for start in range(0, body.size_bytes, _COMPARED_BYTES):
            end = min(start + _COMPARED_BYTES, body.size_bytes)
            if self.get(key, start, end) != b"".join(body.data(start, end)):
                return None
        self._checksums.etags_are_md5 = False
        return stat.etag

    def _read(self, answer: _Answer, size: int) -> bytes:
        data = read_body(answer, size, self._clock, silence_ms=self._config.request_timeout_ms)
        self._retrier.received(size)
        return data

    def _ask(self, kind: str, key: str, operation: str, **arguments: object) -> _Answer:
        """Make a request without a body."""

        def call() -> _Answer:
            self._retrier.count(kind)
            method = getattr(self._client(), operation)
            return method(Bucket=self._config.bucket, **arguments)  # type: ignore[no-any-return]

        return self._retrier.run(f"{kind.upper()} {key}".rstrip(), call)

    def _client(self) -> Any:  # noqa: ANN401 - boto3 has no types
        """Return the client, created at its first use since that takes a while."""
        with self._lock:
            if self._made_client is None:
                try:
                    self._made_client = make_client(self._config)
                except BotoCoreError:
                    raise
                except ValueError as error:
                    raise BucketRefused(
                        f"{self._place}: not a URL; correct storage.endpoint_url"
                    ) from error
            return self._made_client

    def _renew(self) -> None:
        """Drop the client and its credentials, so that both are looked up again."""
        with self._lock:
            client, self._made_client = self._made_client, None
        if client is not None:
            client.close()


def _shown(endpoint_url: str) -> str:
    """Return a URL without the parts that may hold a password."""
    if not endpoint_url:
        return "Amazon"
    try:
        parts = urlsplit(endpoint_url)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return "storage.endpoint_url"
    return f"{parts.scheme}://{host}" if host else "storage.endpoint_url"
