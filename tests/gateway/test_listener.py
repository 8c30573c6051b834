"""The listener over real sockets: limits, TLS, the PROXY header, deadlines, faults, drain."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.admission import Admission
from gateway.config.base import ListenerConfig
from gateway.errors import PeerError
from gateway.listener import Connection, Listener
from tests.support.certificates import make_certificate
from tests.support.waiting import until

BULK_BYTES = 32 * 1024 * 1024


class Lines(Connection):
    """Echoes lines; some words have a meaning of their own."""

    def __init__(self, listener: Listener) -> None:
        super().__init__(listener)
        self.waiting = False
        self.hurried = False

    def received(self, size_bytes: int) -> None:
        line = bytes(self.listener.receive_buffer[:size_bytes]).strip()
        self.has_greeted = True
        if line == b"fault":
            msg = "a fault of the peer"
            raise PeerError(msg)
        if line == b"bug":
            raise RuntimeError(line)
        if line == b"bulk":
            self.send(bytes(BULK_BYTES))
        elif line == b"half":
            self.frame_started_s = self.listener.now_s
        elif line == b"wait":
            self.waiting = True
        else:
            self.send(b"<", line, b">")

    def has_unsaved_work(self) -> bool:
        return self.waiting

    def hurry(self) -> None:
        if self.waiting:
            self.waiting = False
            self.send(b"hurried")


@contextlib.asynccontextmanager
async def listening(
    *, shared: Admission | None = None, **settings: object
) -> AsyncIterator[Listener]:
    config = ListenerConfig.model_validate({"bind": "127.0.0.1:0", **settings})
    listener = Listener("lines", config, Lines, admission=shared)
    await listener.start()
    try:
        yield listener
    finally:
        await listener.stop()
        while _clients:
            client = _clients.pop()
            client.close()
            with contextlib.suppress(OSError):
                await client.wait_closed()


_clients: list[asyncio.StreamWriter] = []
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect(listener: Listener, tls: ssl.SSLContext | None = None) -> Streams:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", listener.port, ssl=tls, server_hostname="localhost" if tls else None
    )
    _clients.append(writer)
    return reader, writer


async def ask(streams: Streams, line: bytes, answer_bytes: int) -> bytes:
    reader, writer = streams
    writer.write(line)
    return await reader.readexactly(answer_bytes)


async def closed(streams: Streams) -> bool:
    """Wait until the gateway has closed the connection."""
    with contextlib.suppress(ConnectionError):
        return await streams[0].read() == b""
    return True


async def test_what_is_sent_in_one_turn_leaves_in_one_write() -> None:
    async with listening() as listener:
        client = await connect(listener)
        assert await ask(client, b"a", 3) == b"<a>"
        assert listener.socket_writes == 1


async def test_a_peers_fault_closes_it_and_no_other() -> None:
    async with listening() as listener:
        good, bad = await connect(listener), await connect(listener)
        bad[1].write(b"fault")
        assert await closed(bad)
        assert await ask(good, b"b", 3) == b"<b>"
        assert listener.faults["PeerError"] == 1


async def test_a_bug_closes_one_connection_and_no_other() -> None:
    async with listening() as listener:
        good, bad = await connect(listener), await connect(listener)
        bad[1].write(b"bug")
        assert await closed(bad)
        assert await ask(good, b"b", 3) == b"<b>"
        assert listener.faults["bug"] == 1


async def test_connections_above_the_limit_are_closed_and_room_is_given_back() -> None:
    async with listening(connections_max=1) as listener:
        first = await connect(listener)
        await ask(first, b"a", 3)
        assert await closed(await connect(listener))
        assert listener.refused == 1
        first[1].close()
        await first[1].wait_closed()
        while listener.connections:
            await asyncio.wait_for(first[0].read(), 60)
        assert await ask(await connect(listener), b"c", 3) == b"<c>"


async def test_one_address_may_have_so_many_connections() -> None:
    async with listening(connections_per_ip_max=2) as listener:
        for _ in range(2):
            await ask(await connect(listener), b"a", 3)
        assert await closed(await connect(listener))


async def test_a_connection_that_never_speaks_is_closed() -> None:
    async with listening(handshake_s_max=1) as listener:
        silent = await connect(listener)
        assert await asyncio.wait_for(closed(silent), 60)
        assert listener.faults["handshake_s_max"] == 1


async def test_a_half_frame_meets_its_deadline() -> None:
    async with listening(frame_s_max=1) as listener:
        half = await connect(listener)
        half[1].write(b"half")
        assert await asyncio.wait_for(closed(half), 60)
        assert listener.faults["frame_s_max"] == 1


async def test_an_idle_connection_is_closed() -> None:
    async with listening(idle_s_max=1) as listener:
        idle = await connect(listener)
        await ask(idle, b"a", 3)
        assert await asyncio.wait_for(closed(idle), 60)
        assert listener.faults["idle_s_max"] == 1


async def test_a_slow_reader_is_not_read_from_until_it_has_caught_up() -> None:
    async with listening() as listener:
        slow = await connect(listener)
        slow[1].write(b"bulk")
        await slow[0].read(1)
        [connection] = listener.connections
        assert not connection.is_writable
        assert connection.is_held_but_for("anything else")
        slow[1].write(b"more")
        rest = BULK_BYTES - 1
        await slow[0].readexactly(rest)
        assert await slow[0].readexactly(6) == b"<more>"
        assert connection.is_writable


async def test_over_tls_a_slow_reader_is_not_encrypted_ahead_for(tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path)
    trust = ssl.create_default_context(cafile=str(cert))
    async with listening(tls_cert=cert, tls_key=key) as listener:
        slow = await connect(listener, trust)
        slow[1].write(b"bulk")
        await slow[0].readexactly(1)
        [connection] = listener.connections
        assert not connection.is_writable
        assert connection.out_bytes > BULK_BYTES // 2
        assert await slow[0].readexactly(BULK_BYTES - 1) == bytes(BULK_BYTES - 1)
        assert await ask(slow, b"a", 3) == b"<a>"


async def test_a_peer_that_takes_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.connection.CLOSE_S_MAX", 0.5)
    async with listening(idle_s_max=1) as listener:
        slow = await connect(listener)
        slow[1].write(b"bulk")
        await slow[0].read(1)
        async with asyncio.timeout(60):
            while listener.connections:
                await _turn()
        assert listener.faults["idle_s_max"] == 1


async def test_a_peer_that_takes_a_little_is_not_stalled() -> None:
    async with listening(idle_s_max=1) as listener:
        slow = await connect(listener)
        slow[1].write(b"bulk")
        await slow[0].read(1)
        [connection] = listener.connections
        connection.stalled_s(listener.now_s)
        connection.bytes_sent += 1
        assert connection.stalled_s(listener.now_s + 100) == 0
        assert connection.stalled_s(listener.now_s + 101) == 1


async def test_time_in_which_reads_were_held_does_not_count_for_a_frame() -> None:
    async with listening() as listener:
        half = await connect(listener)
        half[1].write(b"half")
        await until(lambda: any(c.frame_started_s is not None for c in listener.connections))
        [connection] = listener.connections
        connection.hold_reads("a full log")
        listener.now_s += 3600
        connection.release_reads("a full log")
        assert connection.overdue(listener.now_s) is None
        assert connection.overdue(listener.now_s + 31) == "frame_s_max"


async def test_time_in_which_the_process_stood_still_is_nobodys_fault() -> None:
    async with listening(idle_s_max=60) as listener:
        idle = await connect(listener)
        await ask(idle, b"a", 3)
        listener._swept_s -= 3600
        listener._sweep()
        assert await ask(idle, b"b", 3) == b"<b>"


async def test_after_a_fault_nothing_is_sent_any_more() -> None:
    async with listening() as listener:
        bad = await connect(listener)
        await ask(bad, b"a", 3)
        [connection] = listener.connections
        connection.send(b"before")
        connection.fail(PeerError("a fault"))
        connection.send(b"after")
        assert await bad[0].read() == b"before"


async def test_those_who_have_not_shown_their_proxy_header_count() -> None:
    async with listening(proxy_protocol=True, connections_max=1) as listener:
        silent = await connect(listener)
        await until(lambda: len(listener.proxy_handshakes) == 1)
        assert await closed(await connect(listener))
        assert listener.refused == 1
        silent[1].write(b"PROXY TCP4 203.0.113.7 192.0.2.1 56324 443\r\n")
        assert await ask(silent, b"a", 3) == b"<a>"


async def test_tls(tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path)
    trust = ssl.create_default_context(cafile=str(cert))
    async with listening(tls_cert=cert, tls_key=key) as listener:
        assert await ask(await connect(listener, trust), b"a", 3) == b"<a>"


async def test_a_client_certificate_can_be_demanded(tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path)
    trust = ssl.create_default_context(cafile=str(cert))
    async with listening(tls_cert=cert, tls_key=key, tls_client_ca=cert) as listener:
        stranger = await connect(listener, trust)
        stranger[1].write(b"a")
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await stranger[0].readexactly(3)
        trust.load_cert_chain(cert, key)
        assert await ask(await connect(listener, trust), b"a", 3) == b"<a>"


async def test_the_proxy_header_names_the_peer() -> None:
    async with listening(proxy_protocol=True) as listener:
        client = await connect(listener)
        client[1].write(b"PROXY TCP4 203.0.113.7 192.0.2.1 56324 443\r\n")
        assert await ask(client, b"a", 3) == b"<a>"
        assert [c.peer_host for c in listener.connections] == ["203.0.113.7"]


async def test_the_proxy_header_goes_before_tls(tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path)
    trust = ssl.create_default_context(cafile=str(cert))
    async with listening(proxy_protocol=True, tls_cert=cert, tls_key=key) as listener:
        reader, writer = await connect(listener)
        writer.write(b"PROXY TCP4 203.0.113.7 192.0.2.1 56324 443\r\n")
        await writer.start_tls(trust, server_hostname="localhost")
        assert await ask((reader, writer), b"a", 3) == b"<a>"
        assert [c.peer_host for c in listener.connections] == ["203.0.113.7"]


async def test_a_connection_without_its_proxy_header_is_closed() -> None:
    async with listening(proxy_protocol=True) as listener:
        stranger = await connect(listener)
        stranger[1].write(b"GET / HTTP/1.1\r\n\r\n")
        assert await closed(stranger)
        assert listener.faults["ProxyProtocol"] == 1


async def test_drain_hurries_what_waits_and_refuses_what_is_new() -> None:
    async with listening() as listener:
        waiting = await connect(listener)
        await ask(waiting, b"a", 3)
        waiting[1].write(b"wait")
        [connection] = listener.connections
        assert isinstance(connection, Lines)
        while not connection.waiting:
            await _turn()
        await listener.drain(5)
        assert await waiting[0].readexactly(7) == b"hurried"
        with pytest.raises(ConnectionRefusedError):
            await connect(listener)


async def _turn() -> None:
    """Let the loop turn once."""
    done = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(done.set_result, None)
    await done
