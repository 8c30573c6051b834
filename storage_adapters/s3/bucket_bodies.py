"""Bodies of requests and answers: pieces as one file, checksums, bounded reading."""

import hashlib
import io
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

import urllib3
from crc32c import crc32c

from gateway.clock import Clock
from gateway.model import Buffer
from storage_adapters.s3.bucket_errors import BodyBroken, TooSlow

READ_BYTES: Final = 256 * 1024  # at most, at a time
SENT_BYTES_MIN: Final = (
    1024 * 1024
)  # at a time, within one timeout; urllib3 reads 16 KiB at a time
BYTES_PER_S_MIN: Final = 64 * 1024  # a body that stays slower is abandoned

_PLAIN: Final = re.compile(r"[0-9a-f]{32}(-[0-9]{1,5})?")
_CONTENT_RANGE: Final = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})")


class BodyPart(NamedTuple):
    """Bytes [``start``, ``end``) of a body."""

    number: int
    start: int
    end: int


class Body:
    """A body in pieces that are not joined, cut into parts of ``part_bytes``.

    Checksums are computed at each call.
    """

    def __init__(self, pieces: Sequence[Buffer], part_bytes: int) -> None:
        self._pieces = [memoryview(piece).cast("B") for piece in pieces if len(piece)]
        self._ends = list(accumulate(len(piece) for piece in self._pieces))
        self.size_bytes = self._ends[-1] if self._ends else 0
        self.is_in_parts = self.size_bytes > part_bytes
        step = part_bytes if self.is_in_parts else max(self.size_bytes, 1)
        self.parts = [
            BodyPart(number, start, min(start + step, self.size_bytes))
            for number, start in enumerate(range(0, max(self.size_bytes, 1), step), 1)
        ]

    @property
    def etag(self) -> str:
        """Return the ETag that S3 computes from MD5: of the whole body, or of the parts' MD5."""
        digests = [self.md5(part) for part in self.parts]
        if not self.is_in_parts:
            return digests[0].hex()
        whole = hashlib.md5(b"".join(digests), usedforsecurity=False)
        return f"{whole.hexdigest()}-{len(digests)}"

    def md5(self, part: BodyPart) -> bytes:
        """Return a part's MD5."""
        digest = hashlib.md5(usedforsecurity=False)
        for data in self.data(part.start, part.end):
            digest.update(data)
        return digest.digest()

    def crc32c(self, part: BodyPart) -> int:
        """Return a part's CRC-32C."""
        crc = 0
        for data in self.data(part.start, part.end):
            crc = crc32c(data, crc)
        return crc

    def open(self, start: int, end: int) -> "BodyReader":
        """Return a range of the body as a file at its beginning."""
        return BodyReader(self, start, end)

    def data(self, start: int, end: int) -> Iterator[memoryview]:
        """Yield bytes [``start``, ``end``) as slices of the pieces."""
        index = bisect_right(self._ends, start)
        while start < end:
            piece = self._pieces[index]
            piece_start = self._ends[index] - len(piece)
            piece_end = min(end, self._ends[index])
            yield piece[start - piece_start : piece_end - piece_start]
            start = piece_end
            index += 1


class BodyReader:
    """File over a range of a body; boto3 sends it in blocks, each with a timeout of its own.

    One `bytes` would have to be sent within a single timeout, whatever its size. Blocks are large,
    since each begins by waiting for the interpreter's lock; a block within one piece is not copied.
    """

    def __init__(self, body: Body, start: int, end: int) -> None:
        self._body = body
        self._start = start
        self._at = start
        self._end = end

    def tell(self) -> int:
        """See ``io.IOBase``."""
        return self._at - self._start

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """See ``io.IOBase``."""
        base = {io.SEEK_SET: self._start, io.SEEK_CUR: self._at, io.SEEK_END: self._end}
        self._at = min(max(base[whence] + offset, self._start), self._end)
        return self.tell()

    def read(self, size: int | None = -1) -> Buffer:
        """See ``io.RawIOBase``; returns at least ``SENT_BYTES_MIN`` before the end."""
        left = self._end - self._at
        size = left if size is None or size < 0 else min(max(size, SENT_BYTES_MIN), left)
        pieces = list(self._body.data(self._at, self._at + size))
        self._at += size
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def is_plain_etag(answer: dict[str, Any]) -> bool:
    """Return whether an answer's ETag is an MD5; with KMS or customer keys it is not."""
    if str(answer.get("ServerSideEncryption", "")).startswith("aws:kms"):
        return False
    if "SSECustomerAlgorithm" in answer:
        return False
    return _PLAIN.fullmatch(etag_of(answer)) is not None


def etag_of(answer: dict[str, Any]) -> str:
    """Return the ETag of an answer, without quotes."""
    return str(answer.get("ETag", "")).strip('"')


def read_body(answer: dict[str, Any], size: int, clock: Clock, *, silence_ms: int) -> bytes:
    """Read a body of exactly ``size`` bytes; refuse a longer one unread.

    Errors: ``BodyBroken``; ``TooSlow`` for one that takes longer than ``silence_ms`` plus its
    size at ``BYTES_PER_S_MIN``; those of urllib3.
    """
    deadline_ms = clock.monotonic_ms() + silence_ms + size * 1_000 // BYTES_PER_S_MIN
    with answer["Body"] as stream:
        length = int(answer["ContentLength"])
        if length != size:
            raise BodyBroken(f"{length} bytes came where {size} were asked for")
        pieces = list(_pieces(stream, size, clock, deadline_ms))
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _pieces(
    stream: urllib3.BaseHTTPResponse, size: int, clock: Clock, deadline_ms: int
) -> Iterator[bytes]:
    """Yield data as it arrives, since one read of all would have no bound in time."""
    left = size
    while left:
        data = stream.read1(min(left, READ_BYTES))
        if not data:
            raise BodyBroken(f"the body broke off, {left} of {size} bytes are missing")
        left -= len(data)
        yield data
        if left and clock.monotonic_ms() > deadline_ms:
            raise TooSlow(f"the body came slower than {BYTES_PER_S_MIN} bytes/s")


def parse_content_range(answer: dict[str, Any]) -> tuple[int, int, int]:
    """Return the range of the answer (first byte, one past the last) and the object's size.

    An answer without a Content-Range has the whole object.

    >>> parse_content_range({"ContentRange": "bytes 5-9/100"})
    (5, 10, 100)

    Errors: ``BodyBroken``.
    """
    text = answer.get("ContentRange")
    if text is None:
        length = int(answer["ContentLength"])
        return 0, length, length
    found = _CONTENT_RANGE.fullmatch(str(text))
    if found is None:
        raise BodyBroken("the answer's Content-Range is not one")
    first, last, size = map(int, found.groups())
    return first, last + 1, size
