"""The SQS endpoint: one HTTP listener over one node."""

import asyncio
import re
import uuid
from email.utils import formatdate
from typing import Any, ClassVar, Final

from adapters.sqs.auth.authentication import RequestAuthenticator
from adapters.sqs.config import SqsConfig
from adapters.sqs.connection import SqsConnection
from adapters.sqs.dispatch import Dispatcher
from adapters.sqs.node import SqsNode, open_node
from adapters.sqs.queues.declared import make_declared
from gateway.budget import Budget
from gateway.config.base import Address
from gateway.kernel import Endpoint, Kernel
from gateway.listener import Listener
from gateway.monitoring.request_latency import RequestLatency

# A host and port that may stand in a URL; nothing else of a request gets into one.
_HOST: Final = re.compile(
    rb"[A-Za-z0-9._-]{1,253}(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](:[0-9]{1,5})?"
)
_COUNTER_DIGITS: Final = 12  # hexadecimal digits, the last group of a UUID


class SqsAdapter:
    """Amazon SQS over HTTP/1.1 on one listener."""

    Config: ClassVar = SqsConfig

    def __init__(self, config: SqsConfig, kernel: Kernel) -> None:
        self.config = config
        self.kernel = kernel
        self.append_queue = kernel.broker.append_queue
        self.body_budget = Budget(
            "request", config.request_bytes_budget, stall_s_max=config.request_stall_s_max
        )
        self._node: SqsNode | None = None
        self._dispatcher: Dispatcher | None = None
        self._listener: Listener | None = None
        self._request_id_prefix = str(uuid.uuid4())[:-_COUNTER_DIGITS]
        self._requests_count = 0
        self._date_s = 0
        self._date = ""

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """Budgets that connections share, for metrics."""
        return (self.body_budget,)

    @property
    def node(self) -> SqsNode:
        """State shared by all handlers, once started."""
        assert self._node is not None
        return self._node

    @property
    def dispatcher(self) -> Dispatcher:
        """The dispatcher of requests, once started."""
        assert self._dispatcher is not None
        return self._dispatcher

    @property
    def listeners(self) -> list[Listener]:
        """The listeners that have started."""
        return [] if self._listener is None else [self._listener]

    @property
    def listener(self) -> Listener:
        """The listener, once started."""
        assert self._listener is not None
        return self._listener

    # --- parts of answers

    def next_request_id(self) -> str:
        """Return a request id in the form of a UUID, unique for this node."""
        self._requests_count += 1
        return f"{self._request_id_prefix}{self._requests_count:012x}"

    def http_date(self) -> str:
        """Return the time for the header ``Date`` (RFC 9110 section 5.6.7).

        SDKs correct their clocks by it.
        """
        now_s = self.kernel.clock.wall_unix_ms() // 1_000
        if now_s != self._date_s:
            self._date_s = now_s
            self._date = formatdate(now_s, usegmt=True)
        return self._date

    def base_url(self, host: bytes | None, transport: asyncio.Transport | None) -> str:
        """Return the beginning of queue URLs: the configured one, or the host of the request."""
        if self.config.advertise:
            return self.config.advertise
        if host is None or not _HOST.fullmatch(host.strip()):
            host = str(Address(self.listener.host, self.listener.port)).encode("ascii")
        is_tls = transport is not None and transport.get_extra_info("ssl_object") is not None
        return f"{'https' if is_tls else 'http'}://{host.strip().decode('ascii')}"

    # --- start and stop

    async def start(self) -> None:
        """Listen. Errors: ``OSError`` when the address is taken; those of ``make_declared``."""
        self._node = await open_node(self.config, self.kernel)
        kernel, config = self.kernel, self.config
        await make_declared(
            self._node, kernel.topics, config.queues, partitions=config.queue_partitions
        )
        authenticator = RequestAuthenticator(
            config, kernel.access_keys, kernel.authenticator, kernel.clock
        )
        self._dispatcher = Dispatcher(self._node, authenticator)
        self._listener = Listener(
            "sqs",
            self.config,
            lambda listener: SqsConnection(listener, self),
            admission=self.kernel.admission,
        )
        await self._listener.start()

    async def drain(self, seconds_max: float) -> None:
        """Stop accepting; end waiting receives and answer the requests that have begun."""
        await self.listener.drain(seconds_max)

    async def stop(self) -> None:
        """Close every connection; changes of queues that have begun are completed."""
        if self._listener is not None:
            await self._listener.stop()
        if self._node is not None:
            await self._node.changes.close()
            self._node.messages.close()

    # --- reports

    def endpoints(self) -> list[Endpoint]:
        """Return the endpoint that ``headgate serve`` prints when it is ready."""
        scheme = "https" if self.config.tls_cert is not None else "http"
        address = Address(self.listener.host, self.listener.port)
        url = self.config.advertise or f"{scheme}://{address}"
        try_it = f"aws --endpoint-url {url} sqs create-queue --queue-name greetings"
        return [Endpoint("sqs", url, try_it)]

    def request_counts(self) -> list[tuple[str, int]]:
        """Return the count of requests by action."""
        return [(name, count) for name, count in self.dispatcher.requests.items() if count]

    @property
    def latency(self) -> RequestLatency:
        """See ``MeasuresLatency``."""
        return self.dispatcher.latency

    def connections(self) -> list[dict[str, Any]]:
        """Return the connections for ``headgate clients``."""
        return [connection.describe() for connection in self.listener.connections]
