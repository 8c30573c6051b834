"""Exporter of spans: a bounded queue, and a thread that sends them to an OTLP receiver.

A receiver that is slow or away never delays the loop: the queue fills up, and spans are dropped
and counted.
"""

import http.client
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import SplitResult, urlsplit

import structlog

from gateway.config.otel import OtelConfig
from gateway.tracing.span import Span

REQUEST_SPANS_MAX: Final = 512
"""Spans of one request."""
EVERY_S: Final = 1.0
STOP_S_MAX: Final = 2.0
"""Time for the last spans when the node stops."""
_OK: Final = range(200, 300)
_HEADERS: Final = {"Content-Type": "application/x-protobuf"}

Encode = Callable[[Sequence[Span]], bytes]

log = structlog.get_logger()


class SpanExporter:
    """Queue and thread. ``submit`` is called on the loop; ``dropped`` counts spans by reason."""

    def __init__(self, config: OtelConfig, encode: Encode) -> None:
        self.exported = 0
        self.dropped: Counter[str] = Counter()
        self._spans: deque[Span] = deque()
        self._spans_max = config.spans_queued_max
        self._timeout_s = config.timeout_ms / 1_000
        self._url = urlsplit(config.endpoint)
        self._headers = dict(_HEADERS)
        if config.authorization_file is not None:
            self._headers["Authorization"] = config.authorization_file.read_text().strip()
        self._encode = encode
        self._is_failing = False
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spans", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Send what is queued, for ``STOP_S_MAX`` at most."""
        self._stopped.set()
        self._thread.join(STOP_S_MAX)

    def submit(self, span: Span) -> None:
        """Queue a span, or drop it when the queue is full."""
        if len(self._spans) >= self._spans_max:
            self.dropped["queue_full"] += 1
        else:
            self._spans.append(span)

    def _run(self) -> None:
        while not self._stopped.wait(EVERY_S):
            self._send_queued()
        self._send_queued()

    def _send_queued(self) -> None:
        for _ in range(-(-len(self._spans) // REQUEST_SPANS_MAX)):
            count = min(len(self._spans), REQUEST_SPANS_MAX)
            spans = [self._spans.popleft() for _ in range(count)]
            try:
                self._send(self._encode(spans))
            except (OSError, http.client.HTTPException) as error:
                self.dropped["receiver"] += count
                self._note_failure(error)
                return
            self.exported += count
            self._is_failing = False

    def _send(self, body: bytes) -> None:
        """Send one request. Error: ``OSError`` also for an answer other than 2xx."""
        connection = _connection(self._url, self._timeout_s)
        try:
            path = self._url.path or "/v1/traces"
            query = f"?{self._url.query}" if self._url.query else ""
            connection.request("POST", path + query, body, self._headers)
            answer = connection.getresponse()
            answer.read()
            if answer.status not in _OK:
                raise OSError(f"the receiver answered {answer.status}")
        finally:
            connection.close()

    def _note_failure(self, error: Exception) -> None:
        if not self._is_failing:  # one line until something gets through again
            self._is_failing = True
            log.warning("spans cannot be sent", url=self._url.geturl(), error=str(error))


def _connection(url: SplitResult, timeout_s: float) -> http.client.HTTPConnection:
    host = url.hostname or ""
    if url.scheme == "https":
        return http.client.HTTPSConnection(host, url.port, timeout=timeout_s)
    return http.client.HTTPConnection(host, url.port, timeout=timeout_s)
