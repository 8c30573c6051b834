"""MESSAGE frames of one subscription. Pure."""

from typing import Final

from gateway.model import Headers, Record
from headgate_stomp.frames import Version, encode_headers
from headgate_stomp.mapping import KEY, from_headers

_IS_REDELIVERED: Final = (b"redelivered:false\n", b"redelivered:true\n")


class MessageEncoder:
    """Encodes what one subscription gets; messages with the same headers share their bytes.

    ``number`` is that of the subscription in its session. ``destination`` is that of all messages,
    or a prefix for keys of records. ``own_key``: the key of records that is not shown.
    """

    def __init__(  # noqa: PLR0913 - by keyword
        self,
        version: Version,
        *,
        session: str,
        number: int,
        subscription: str,
        destination: str,
        own_key: bytes | None,
        is_acked: bool,
        hidden: tuple[str, ...],
    ) -> None:
        self._version = version
        self._hidden = hidden
        self._own_key = own_key
        self._is_prefix = destination.endswith("/")
        self._destination = destination
        fixed = [("subscription", subscription), ("persistent", "true")]
        if not self._is_prefix:
            fixed.append(("destination", destination))
        self._begin = b"MESSAGE\n" + encode_headers(fixed, version)
        ack = b"ack:%d-%%d\n" % number if is_acked and version is Version.V12 else b""
        self._ids = b"message-id:%s@%d-%%d\n" % (session.encode(), number) + ack
        self._id_count = self._ids.count(b"%d")
        self._last: tuple[Headers, bytes | None] | None = None
        self._last_encoded = b""

    def encode(self, record: Record, tag: int, *, is_redelivered: bool) -> bytes:
        """Return a frame. A null value is an empty body."""
        like = record.headers, record.key
        if like != self._last:
            self._last = like
            self._last_encoded = self._encode_headers(record)
        body = record.value or b""
        return b"".join(
            (
                self._begin,
                self._ids % ((tag,) * self._id_count),
                _IS_REDELIVERED[is_redelivered],
                self._last_encoded,
                b"content-length:%d\n\n" % len(body),
                body,
                b"\0",
            )
        )

    def _encode_headers(self, record: Record) -> bytes:
        key = (record.key or b"").decode(errors="backslashreplace")
        headers = from_headers(record.headers, self._hidden)
        if self._is_prefix:
            headers.append(("destination", f"{self._destination}{key}"))
        elif record.key is not None and record.key != self._own_key:
            headers.append((KEY, key))
        return encode_headers(headers, self._version)


def parse_ack_id(text: str) -> tuple[int, int]:
    """Return the number of a subscription and a tag of ``ack`` or ``message-id``.

    Error: ``ValueError``.

    >>> parse_ack_id("0af3@2-17"), parse_ack_id("2-17")
    ((2, 17), (2, 17))
    """
    number, _, tag = text.rpartition("@")[2].partition("-")
    return int(number), int(tag)
