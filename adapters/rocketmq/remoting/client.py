"""Client half of the remoting protocol: calls to a server, and the requests that it sends.

For tests, and for work against other name servers and brokers. Responses are related to calls by
``opaque``; requests of the server are handed out by a callback, and never answered.
"""

import asyncio
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count
from typing import Final, Self

from adapters.rocketmq.remoting.codec import decode_frame, encode_frame
from adapters.rocketmq.remoting.wire import NO_FIELDS, ONEWAY_FLAG, Command, Serialization
from gateway.config.base import Address
from gateway.errors import GatewayError, PeerError

CALL_S_MAX: Final = 30.0
FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
_SIZE: Final = struct.Struct(">i")

OnRequest = Callable[[Command], None]
Sign = Callable[[Command], Command]


class ServerGone(GatewayError):
    """Connection that has ended before the response came."""


def _check_size(size_bytes: int) -> None:
    if not 0 <= size_bytes <= FRAME_BYTES_MAX:
        raise PeerError(f"a frame of {size_bytes} bytes")


class RemotingClient:
    """Connection to a server. ``connect`` opens it; it is closed at the end of ``async with``.

    ``on_request`` gets the server's requests. ``sign`` returns a request with a signature.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        serialization: Serialization = Serialization.JSON,
        on_request: OnRequest | None = None,
        sign: Sign | None = None,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._serialization = serialization
        self._on_request = on_request
        self._sign = sign
        self._opaques = count(1)
        self._calls: dict[int, asyncio.Future[Command]] = {}
        self._task = asyncio.get_running_loop().create_task(self._read())

    @classmethod
    async def connect(
        cls,
        address: Address,
        *,
        serialization: Serialization = Serialization.JSON,
        on_request: OnRequest | None = None,
        sign: Sign | None = None,
    ) -> Self:
        """Return an open connection. Error: ``OSError``."""
        reader, writer = await asyncio.open_connection(*address)
        return cls(
            reader, writer, serialization=serialization, on_request=on_request, sign=sign
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def call(
        self,
        code: int,
        fields: Mapping[str, str] = NO_FIELDS,
        body: bytes = b"",
        *,
        within_s: float = CALL_S_MAX,
    ) -> Command:
        """Return the response to a request. Errors: ``TimeoutError``, ``ServerGone``."""
        opaque = next(self._opaques)
        if self._task.done():
            raise ServerGone("the connection has ended")
        response = self._calls[opaque] = asyncio.get_running_loop().create_future()
        try:
            await self._send(Command(code, fields, body, opaque))
            async with asyncio.timeout(within_s):
                answer: Command = await response
                return answer
        finally:
            del self._calls[opaque]

    async def send_oneway(
        self, code: int, fields: Mapping[str, str] = NO_FIELDS, body: bytes = b""
    ) -> None:
        """Send a request that is not answered."""
        await self._send(Command(code, fields, body, next(self._opaques), ONEWAY_FLAG))

    async def _send(self, command: Command) -> None:
        command = command._replace(serialization=self._serialization)
        if self._sign is not None:
            command = self._sign(command)
        self._writer.write(encode_frame(command))
        with suppress(ConnectionError):  # the reader sees the end, and tells every call
            await self._writer.drain()

    async def _read(self) -> None:
        reason = "the server has closed the connection"
        try:
            while True:
                (size,) = _SIZE.unpack(await self._reader.readexactly(_SIZE.size))
                _check_size(size)
                command = decode_frame(memoryview(await self._reader.readexactly(size)))
                self._take(command._replace(body=bytes(command.body)))
        except (OSError, asyncio.IncompleteReadError):
            pass
        except PeerError as error:
            reason = str(error)
        finally:
            for call in self._calls.values():
                if not call.done():
                    call.set_exception(ServerGone(reason))

    def _take(self, command: Command) -> None:
        if not command.is_response:
            if self._on_request is not None:
                self._on_request(command)
            return
        call = self._calls.get(command.opaque)
        if call is not None and not call.done():
            call.set_result(command)

    async def close(self) -> None:
        """Close the connection; pending calls end with ``ServerGone``."""
        self._task.cancel()
        self._writer.close()
        with suppress(OSError, asyncio.CancelledError):
            await self._task
        with suppress(OSError):
            await self._writer.wait_closed()
