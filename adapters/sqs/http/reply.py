"""One HTTP response of a connection, encoded in the protocol of its request.

The JSON protocol is answered in JSON. The Query protocol, and requests of neither protocol, are
answered in XML, or in JSON of its own where the request asks for it.
"""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from time import perf_counter
from typing import Any, Final, Protocol

from adapters.sqs.call import Call, Result
from adapters.sqs.errors import SqsError
from adapters.sqs.http import json_codec, query_json, xml_codec
from adapters.sqs.http.shapes import Operation
from gateway.monitoring.request_latency import RequestLatency

_STATUS_LINES: Final[Mapping[int, str]] = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus
}
_OK_JSON: Final = (
    f"HTTP/1.1 200 OK\r\nContent-Type: {json_codec.CONTENT_TYPE}\r\nx-amzn-RequestId: "
)
_CLOSE: Final = "Connection: close\r\n"


class ReplyConnection(Protocol):
    """The connection as a reply uses it; ``SqsConnection`` implements it."""

    @property
    def http_date(self) -> Callable[[], str]:
        """Returns the time for the header ``Date``."""
        ...

    def guard(self, work: Callable[..., None], *args: Any) -> None:  # noqa: ANN401 - passed on
        """Run ``work``; an exception closes this connection only."""
        ...

    def on_reply(self, size_bytes: int) -> None:
        """Send the responses whose turn it is; one more is complete."""
        ...


class Reply:
    """The response to one request, given once. ``data`` is the whole response when complete."""

    __slots__ = (
        "begun_s",
        "call",
        "connection",
        "data",
        "is_json",
        "is_last",
        "latency",
        "operation",
        "request_id",
        "sends_body",
        "wants_json",
    )  # fmt: skip

    def __init__(
        self,
        connection: ReplyConnection,
        request_id: str,
        *,
        is_last: bool,
        sends_body: bool,
    ) -> None:
        self.connection = connection
        self.request_id = request_id
        self.is_last = is_last
        self.sends_body = sends_body
        self.is_json = False
        self.wants_json = False  # of the Query protocol
        self.operation: Operation | None = None
        self.call: Call | None = None
        self.data: bytes | None = None
        self.latency: RequestLatency | None = None  # counts the answer; not of plain HTTP
        self.begun_s = 0.0

    def __call__(self, call: Call, result: Result | None, error: SqsError | None) -> None:  # noqa: ARG002 - see ``Answer``
        """See ``Answer``. An exception closes this connection only."""
        self.connection.guard(self._answer, result, error)

    def _answer(self, result: Result | None, error: SqsError | None) -> None:
        if error is not None:
            self.fail(error)
            return
        assert result is not None
        assert self.operation is not None
        if not self.is_json:
            codec = query_json if self.wants_json else xml_codec
            body = codec.encode_result(self.operation, result, self.request_id)
            self.finish(200, codec.CONTENT_TYPE, body)
            return
        self._answer_json(json_codec.encode_result(result))

    def send_json(self, body: bytes) -> None:
        """See ``Answer``."""
        self.connection.guard(self._answer_json, body)

    def _answer_json(self, body: bytes) -> None:
        self._end_call()
        self.data = (
            f"{_OK_JSON}{self.request_id}\r\nDate: {self.connection.http_date()}\r\n"
            f"{_CLOSE if self.is_last else ''}Content-Length: {len(body)}\r\n\r\n"
        ).encode("latin-1") + body
        self.connection.on_reply(len(self.data))

    def fail(self, error: SqsError) -> None:
        """Answer with an error."""
        code = error.code
        if self.is_json:
            fault = "Sender" if code.is_sender else "Receiver"
            self.finish(
                code.status,
                json_codec.CONTENT_TYPE,
                json_codec.encode_error(error),
                f"x-amzn-query-error: {code.query_code};{fault}\r\n",
            )
            return
        codec = query_json if self.wants_json else xml_codec
        body = codec.encode_error(error, self.request_id)
        self.finish(code.status, codec.CONTENT_TYPE, body)

    def finish(self, status: int, content_type: str, body: bytes, headers: str = "") -> None:
        """Answer with any status. ``headers`` are whole header lines."""
        self._end_call()
        head = (
            f"{_STATUS_LINES[status]}Content-Type: {content_type}\r\n"
            f"x-amzn-RequestId: {self.request_id}\r\nDate: {self.connection.http_date()}\r\n"
            f"{headers}{_CLOSE if self.is_last else ''}Content-Length: {len(body)}\r\n\r\n"
        ).encode("latin-1")
        self.data = head + body if self.sends_body else head
        self.connection.on_reply(len(self.data))

    def _end_call(self) -> None:
        """Drop the call, which refers to the request's parameters and to this object."""
        assert self.data is None, "answered twice"
        self.call = None
        if self.latency is not None and self.operation is not None:
            self.latency.observe(self.operation.name, perf_counter() - self.begun_s)
