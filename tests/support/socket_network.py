"""Network between nodes in processes of their own, over a Unix socket, for ``LossyLink``.

The first node dials until the second is there. Each tells the other its shards' epoch, then frames
go both ways. When the connection ends, what had no answer is unknown.
"""

import asyncio
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from gateway.shards.calls import ShardCalls
from tests.support.lossy_network import LossyLink, LossyNetwork

_HELLO: Final = struct.Struct(">II")
_SIZE: Final = struct.Struct(">I")
_DIAL_AGAIN_S: Final = 0.01
_FRAME_BYTES_MAX: Final = 1 << 24


class SocketNetwork(LossyNetwork):
    """One node's end of the connection; it loses nothing while it lasts."""

    def __init__(
        self, node_id: int, epoch: int, path: Path, heard: Callable[[int, int], None]
    ) -> None:
        """``heard``: called with another node and its epoch when it is connected."""
        super().__init__(0)
        self._node_id = node_id
        self._hello = _HELLO.pack(node_id, epoch)
        self._path = path
        self._heard = heard
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._link: LossyLink
        self._tasks: set[asyncio.Task[None]] = set()

    def join(self, node_id: int, shards: ShardCalls) -> None:
        """See ``LossyNetwork``."""
        shards.link = self._link = LossyLink(self, node_id, shards)

    async def listen(self) -> None:
        """Take the other node's connection, again after each start of it."""
        self._path.unlink(missing_ok=True)
        await asyncio.start_unix_server(self._talk, self._path)

    def dial(self) -> None:
        """Connect, and again whenever the connection ends."""
        task = self._loop.create_task(self._dial())
        self._tasks.add(task)
        task.add_done_callback(self._dialled)

    def _dialled(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._loop.call_later(_DIAL_AGAIN_S, self.dial)
        if task.exception() is not None and not isinstance(task.exception(), OSError):
            task.result()

    async def _dial(self) -> None:
        await self._talk(*await asyncio.open_unix_connection(self._path))

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        other = 0
        try:
            writer.write(self._hello)
            other, epoch = _HELLO.unpack(await reader.readexactly(_HELLO.size))
            self._writers[other] = writer
            self._heard(other, epoch)
            while True:
                head = await reader.readexactly(_SIZE.size)
                [size] = _SIZE.unpack(head)
                assert size <= _FRAME_BYTES_MAX
                frame = head + await reader.readexactly(size - _SIZE.size)
                self._link.receive(other, frame)
        except (OSError, asyncio.IncompleteReadError):
            pass  # it was killed
        finally:
            writer.close()
            if self._writers.get(other) is writer:
                del self._writers[other]
                self._link.lose(other)

    # --- see ``LossyNetwork``, for ``LossyLink``

    def send(self, sender: int, receiver: int, frame: bytes) -> None:
        """Send a frame; without a connection the call is unknown."""
        del sender
        writer = self._writers.get(receiver)
        if writer is None:
            self._loop.call_soon(partial(self._link.lose, receiver))
        else:
            writer.write(frame)

    def is_late(self) -> bool:
        """No answer is late."""
        return False
