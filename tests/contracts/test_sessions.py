"""The parts of the adapters that cut streams into messages pass the suite for it."""

import json
import struct
from collections.abc import Sequence
from typing import ClassVar

from adapters.mqtt.packets.framing import PacketReader
from adapters.rocketmq.remoting.codec import FRAME_BYTES_MIN, decode_frame, encode_frame
from adapters.rocketmq.remoting.wire import Command, RequestCode, Serialization
from adapters.sqs.session import BadRequest, HttpSession
from gateway.errors import GatewayError
from gateway.length_framer import LengthFramer
from gateway.testing.session import Receive, SessionContract
from tests.adapters.mqtt.raw_packets import described
from tests.support import mqtt_wire as wire
from tests.support.kafka_wire import API_VERSIONS, batch, produce_body, request

_BYTES_MAX = 4_096


class TestKafkaFrames(SessionContract):
    messages = (
        request(API_VERSIONS, 0, 1, b""),
        request(0, 3, 2, produce_body([("topic", 0, batch([b"value"], timestamp_ms=1))])),
        request(3, 1, 3, struct.pack(">i", -1)),
    )
    too_large = struct.pack(">i", _BYTES_MAX + 1)

    def new_session(self) -> Receive:
        shared = memoryview(bytearray(1 << 17))
        framer = LengthFramer(shared, bytes_min=8, bytes_max=_BYTES_MAX)

        def receive(data: bytes) -> Sequence[object]:
            buffer = framer.buffer()
            buffer[: len(data)] = data
            return [bytes(frame) for frame in framer.received(len(data))]

        return receive


class TestRemotingFrames(SessionContract):
    messages: ClassVar = [
        encode_frame(Command(RequestCode.SEND_MESSAGE_V2, {"b": "topic"}, b"body", 1)),
        encode_frame(Command(RequestCode.GET_MAX_OFFSET, serialization=Serialization.ROCKETMQ)),
        encode_frame(Command(RequestCode.HEART_BEAT, {}, b'{"clientID":"c"}', 3)),
    ]
    too_large = struct.pack(">i", _BYTES_MAX + 1)

    def new_session(self) -> Receive:
        shared = memoryview(bytearray(1 << 17))
        framer = LengthFramer(shared, bytes_min=FRAME_BYTES_MIN, bytes_max=_BYTES_MAX)

        def receive(data: bytes) -> Sequence[object]:
            buffer = framer.buffer()
            buffer[: len(data)] = data
            commands = map(decode_frame, framer.received(len(data)))
            return [one._replace(body=bytes(one.body)) for one in commands]

        return receive


class TestMqttPackets(SessionContract):
    greeting = wire.connect("client")
    messages = (
        wire.publish("a/b", b"qos 0"),
        wire.publish("a/b", b"qos 1" * 40, qos=1, packet_id=7),
        wire.subscribe(8, [("a/#", 1), ("b", 2)]),
        wire.unsubscribe(9, ["a/#"]),
        wire.ack(wire.Kind.PUBACK, 10),
        wire.ack(wire.Kind.PUBREL, 11, 0x92),
        wire.PINGREQ,
    )
    too_large = b"\x30" + wire.varint(_BYTES_MAX + 1)
    errors = (GatewayError,)

    def new_session(self) -> Receive:
        reader = PacketReader(packet_bytes_max=_BYTES_MAX)

        def receive(data: bytes) -> Sequence[object]:
            packets = reader.receive(data)
            if reader.error is not None:
                raise reader.error
            return described(packets)

        return receive


class TestSqsRequests(SessionContract):
    messages: ClassVar = [
        b"POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: AmazonSQS.ListQueues\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
        for body in (json.dumps({"n": "x" * size}).encode() for size in (1, 100, 3_000))
    ]
    too_large = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (
        _BYTES_MAX + 1
    )
    errors = (BadRequest,)

    def new_session(self) -> Receive:
        session = HttpSession(header_bytes_max=_BYTES_MAX, request_bytes_max=_BYTES_MAX)

        def receive(data: bytes) -> Sequence[object]:
            requests = session.receive_data(data)
            if session.error is not None:
                raise session.error
            return [(one.method, one.path, one.headers, one.body) for one in requests]

        return receive
