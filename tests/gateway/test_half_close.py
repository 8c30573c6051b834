"""The sending side alone is closed, on asyncio's own loop, which raises where uvloop does not."""

import asyncio
import socket
import struct

from gateway.half_close import end_output

_RESET_AT_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER: on, for 0 s


async def _connected(server: asyncio.Server) -> socket.socket:
    host, port = server.sockets[0].getsockname()[:2]
    client = socket.socket()
    client.settimeout(0)
    await asyncio.get_running_loop().sock_connect(client, (host, port))
    return client


def test_a_peer_that_has_reset_is_no_error() -> None:
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(_end_after_a_reset())


async def _end_after_a_reset() -> None:
    made: asyncio.Future[asyncio.Transport] = asyncio.get_running_loop().create_future()
    lost: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()

    class Accepted(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            made.set_result(transport)

        def connection_lost(self, exc: BaseException | None) -> None:
            lost.set_result(exc)

    server = await asyncio.get_running_loop().create_server(Accepted, "127.0.0.1", 0)
    client = await _connected(server)
    transport = await made
    transport.pause_reading()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
    client.close()

    end_output(transport)

    transport.resume_reading()
    async with asyncio.timeout(30):
        await lost
    server.close()
