"""Handshake before a protocol's first byte: the PROXY header, and TLS settings."""

import asyncio
import ssl
from typing import Protocol, cast

from gateway.config.base import ListenerConfig
from gateway.errors import PeerError
from gateway.proxy_protocol import ProxyHeader


class ProxiedListener(Protocol):
    """Port of a handshake to its listener: seats, faults, and the hand-over."""

    config: ListenerConfig
    loop: asyncio.AbstractEventLoop
    proxy_handshakes: "set[ProxyHandshake]"

    def count_connection(self, host: str) -> bool:
        """Count a connection of an address; False when a limit is reached."""
        ...

    def uncount_connection(self, host: str) -> None:
        """Count a connection no more."""
        ...

    def note(self, kind: str, host: str, detail: str) -> None:
        """Count a fault of a peer, and log it at a bounded rate."""
        ...

    def hand_over(self, transport: asyncio.Transport, host: str | None) -> None:
        """Begin the protocol on a transport past its proxy header."""
        ...


class ProxyHandshake(asyncio.BufferedProtocol):
    """Reader of exactly the PROXY header, which then hands the transport over."""

    def __init__(self, listener: ProxiedListener) -> None:
        self._listener = listener
        self._header = ProxyHeader()
        self._buffer = bytearray(16)
        self._is_counted = False
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio. Counts as a connection before its address is known."""
        self._transport = cast("asyncio.Transport", transport)
        if not self._listener.count_connection(
            ""
        ):  # the client's address comes with the header
            self._transport.abort()
            return
        self._is_counted = True
        self._listener.proxy_handshakes.add(self)
        self._deadline = self._listener.loop.call_later(
            self._listener.config.handshake_s_max, self.abort
        )

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        """See asyncio."""
        if self._header.wants > len(self._buffer):
            self._buffer = bytearray(self._header.wants)
        return memoryview(self._buffer)[: self._header.wants]

    def buffer_updated(self, nbytes: int) -> None:
        """See asyncio."""
        assert self._transport is not None
        try:
            self._header.receive(bytes(self._buffer[:nbytes]))
        except PeerError as error:
            self._listener.note("ProxyProtocol", self._peer_host(), str(error))
            self._transport.abort()
            return
        if not self._header.wants:
            self._leave()
            self._listener.hand_over(self._transport, self._header.host)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """See asyncio."""
        self._leave()

    def abort(self) -> None:
        """Close at once, on timeout or when the node stops."""
        if self._transport is not None:
            self._transport.abort()

    def _peer_host(self) -> str:
        """Return the proxy's own address."""
        peer = self._transport.get_extra_info("peername") if self._transport else None
        return str(peer[0]) if peer else ""

    def _leave(self) -> None:
        if self._is_counted:
            self._is_counted = False
            self._listener.uncount_connection("")
        self._listener.proxy_handshakes.discard(self)
        if self._deadline is not None:
            self._deadline.cancel()


def make_tls_context(config: ListenerConfig) -> ssl.SSLContext | None:
    """Return the TLS settings of a listener, or None without TLS."""
    if config.tls_cert is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(config.tls_cert, config.tls_key)
    if config.tls_client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(config.tls_client_ca)
    return context
