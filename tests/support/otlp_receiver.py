"""A receiver of OTLP traces over HTTP, which decodes the protobuf messages."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


class ReceivedSpan(NamedTuple):
    """A span as it arrived; ids in hex."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    begun_unix_ns: int
    ended_unix_ns: int
    attributes: dict[str, Any]
    service: str


class Receiver:
    """Received spans. ``status``: what it answers; ``may_answer``: unset, it keeps clients."""

    def __init__(self) -> None:
        self.spans: list[ReceivedSpan] = []
        self.headers: list[dict[str, str]] = []
        self.status = 200
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.url = ""

    def take(self, body: bytes, headers: dict[str, str]) -> None:
        """Decode a request."""
        self.headers.append(headers)
        request = ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            service = {one.key: one.value.string_value for one in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans += [
                    ReceivedSpan(
                        span.name,
                        span.trace_id.hex(),
                        span.span_id.hex(),
                        span.parent_span_id.hex(),
                        span.kind,
                        span.start_time_unix_nano,
                        span.end_time_unix_nano,
                        {one.key: one.value.string_value or one.value.int_value
                         for one in span.attributes},
                        service["service.name"],
                    )
                    for span in scope.spans
                ]  # fmt: skip


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Run a receiver on a free port."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        """One request."""

        def do_POST(self) -> None:
            """Take spans."""
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.may_answer.wait(60)
            if receiver.status == 200:
                receiver.take(body, dict(self.headers))
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(receiver.status)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
            """Write nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}/v1/traces"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield receiver
    finally:
        receiver.may_answer.set()
        server.shutdown()
        thread.join()
        server.server_close()
