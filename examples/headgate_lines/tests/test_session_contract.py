"""Cutting into lines keeps the contract of every protocol's session."""

from collections.abc import Sequence

from headgate_lines.codec import Command, decode_command, take_lines

from gateway.errors import InvalidRequest
from gateway.testing.session import Receive, SessionContract

_LINE_BYTES_MAX = 100


class TestLineSession(SessionContract):
    messages = (
        b"PING\r\n",
        b"PUB orders hello world\n",
        b"LATER 5000 orders hello world\n",
        b"SUB orders\n",
        b"SUB orders ada\n",
        b"SEEN orders ada 18\n",
        b"TAKE jobs\n",
        b"DONE jobs 0 7 1\n",
    )
    too_large = b"PUB orders " + b"x" * _LINE_BYTES_MAX

    def new_session(self) -> Receive:
        received = bytearray()

        def receive(data: bytes) -> Sequence[Command | str]:
            received.extend(data)
            lines = take_lines(received, line_bytes_max=_LINE_BYTES_MAX)
            return [_decoded(line) for line in lines]

        return receive


def _decoded(line: bytes) -> Command | str:
    """Return a command, or the text of the answer to a line that is none."""
    try:
        return decode_command(line)
    except InvalidRequest as error:
        return str(error)
