"""Closing the sending side of a connection alone."""

import asyncio
from contextlib import suppress


def end_output(transport: asyncio.Transport) -> None:
    """Close the sending side after what is written.

    A peer that has reset the connection meanwhile is no error: asyncio's own loop raises ENOTCONN
    then, uvloop does not, and with both the end of the connection is reported as always.
    """
    with suppress(OSError):
        transport.write_eof()
