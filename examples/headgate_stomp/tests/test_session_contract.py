"""Cutting a stream into frames keeps the contract of every protocol's session."""

from collections.abc import Sequence

from headgate_stomp.frames import Frame, FrameReader, Version

from gateway.testing.session import Receive, SessionContract


class TestFrames(SessionContract):
    messages = (
        b"CONNECT\naccept-version:1.2\nhost:x\n\n\0",
        b"SEND\ndestination:/queue/a\n\nhello\0",
        b"SEND\r\ndestination:/queue/a\r\ncontent-length:5\r\n\r\na\0b\0c\0",
        b"SUBSCRIBE\nid:1\ndestination:/queue/a\\cb\nack:client\n\n\0",
        b"\n\r\n\nACK\nid:1-1\n\n\0",
        b"DISCONNECT\nreceipt:7\n\n\0",
    )
    too_large = b"SEND\ndestination:/queue/a\ncontent-length:101\n\n"

    def new_session(self) -> Receive:
        reader = FrameReader(header_bytes_max=200, headers_max=10, body_bytes_max=100)
        reader.version = Version.V12

        def receive(data: bytes) -> Sequence[Frame]:
            reader.feed(data)
            found = []
            while (frame := reader.take()) is not None:
                found.append(frame)
            return found

        return receive
