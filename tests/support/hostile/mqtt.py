"""Random and mutated MQTT packets of faulty clients."""

import random
from typing import Final

from tests.support import mqtt_wire as wire
from tests.support.hostile.users import User
from tests.support.mqtt_wire import V3_1, V3_1_1, V5, Kind, Prop, Properties, WillMessage

PACKETS_PER_CONNECTION: Final = 20
CLIENTS: Final = 8
WRONG_PASSWORD_EVERY: Final = 20  # its answer is delayed
VERSIONS: Final = (V3_1, V3_1_1, V5)


def valid_packets(version: int, chooser: random.Random) -> list[bytes]:
    """Return one of each packet that a client sends, with most of their fields."""
    is_5 = version == V5
    found: Properties = [
        (Prop.CONTENT_TYPE, "text/plain"),
        (Prop.RESPONSE_TOPIC, "answers"),
        (Prop.CORRELATION_DATA, b"\x00\xff"),
        (Prop.USER, ("name", "value")),
        (Prop.MESSAGE_EXPIRY, 60),
        (Prop.TOPIC_ALIAS, 3),
    ]
    will = WillMessage("fuzz/will", b"w", 1, properties=[(Prop.WILL_DELAY, 1)] if is_5 else ())
    topic = f"fuzz/{chooser.randrange(4)}"
    properties = found if is_5 else ()
    return [
        wire.connect("fuzz-again", version=version, will=will, username="u", password=b"p"),
        wire.publish(topic, b"zero", version=version, found=properties),
        wire.publish(topic, b"one", qos=1, packet_id=1, version=version, retain=True),
        wire.publish(topic, b"two", qos=2, packet_id=2, version=version, found=properties),
        wire.publish(topic, b"", qos=1, packet_id=3, version=version, retain=True),
        *(wire.ack(kind, 1) for kind in (Kind.PUBACK, Kind.PUBREC, Kind.PUBREL, Kind.PUBCOMP)),
        wire.ack(Kind.PUBREL, 2, 0x92 if is_5 else None),
        wire.subscribe(4, [("fuzz/#", 2), ("+/+", 1)], version=version),
        wire.subscribe(5, [("$share/g/fuzz/+", 1), ("$SYS/#", 0)], version=version),
        wire.unsubscribe(6, ["fuzz/#", "none"], version=version),
        wire.PINGREQ,
        wire.disconnect(4 if is_5 else 0, version=version),
        wire.auth(0x19, [(Prop.AUTH_METHOD, "SCRAM-SHA-256"), (Prop.AUTH_DATA, b"n,,")]),
    ]


def mutated(packet: bytes, chooser: random.Random) -> bytes:
    """Return the packet with a few faults; its length mostly says the truth."""
    first = packet[0]
    at = next(index for index in range(1, 5) if packet[index] < 0x80) + 1
    body = bytearray(packet[at:])
    for _ in range(chooser.randrange(1, 4)):
        at = chooser.randrange(len(body)) if body else 0
        kind = chooser.randrange(6)
        if kind == 0 and body:
            body[at] ^= 1 << chooser.randrange(8)
        elif kind == 1:
            del body[at:]
        elif kind == 2:
            body[at:at] = chooser.randbytes(chooser.randrange(1, 16))
        elif kind == 3:
            edge = chooser.choice([b"\x00\x00", b"\xff\xff", b"\xed\xa0", b"\x80\x80\x80\x80"])
            body[at : at + len(edge)] = edge
        elif kind == 4:
            first ^= 1 << chooser.randrange(4)  # its flags
        else:
            first = chooser.randrange(256)  # another packet
    if chooser.randrange(20) == 0:
        body = bytearray(chooser.randbytes(chooser.randrange(200)))
    if chooser.randrange(10):
        return bytes([first]) + wire.varint(len(body)) + body
    length = chooser.choice([0, 1, 127, 128, 16_384, 268_435_455, 2 * len(body)])
    return bytes([first]) + wire.varint(length) + body


def thrown_at_once(chooser: random.Random, user: User | None = None) -> list[bytes]:
    """Return what one faulty client says: CONNECT, which mostly is in order, and more."""
    version = chooser.choice(VERSIONS)
    connect = wire.connect(
        f"fuzz-{chooser.randrange(CLIENTS)}",
        version=version,
        clean=chooser.randrange(2) == 0,
        username=user.name if user else None,
        password=user.password.encode() if user else None,
    )
    said = [connect if chooser.randrange(10) else mutated(connect, chooser)]
    return said + _packets_behind(version, chooser)


def words(chooser: random.Random, user: User | None) -> list[bytes]:
    """Return the packets of a connection, the last of them PINGREQ."""
    if user is not None:
        return [*thrown_at_once(chooser, user), wire.PINGREQ]
    version = chooser.choice(VERSIONS)
    connect = wire.connect("fuzz", version=version)
    if chooser.randrange(2):
        connect = mutated(connect, chooser)
    elif chooser.randrange(WRONG_PASSWORD_EVERY) == 0:
        connect = wire.connect("fuzz", version=version, username="u", password=b"wrong")
    return [connect, *_packets_behind(version, chooser), wire.PINGREQ]


def is_answered(tail: bytes) -> bool:
    """Say whether PINGRESP has come; messages for a subscriber may be behind it."""
    return b"\xd0\x00" in tail


def _packets_behind(version: int, chooser: random.Random) -> list[bytes]:
    packets = valid_packets(version, chooser)
    said = []
    for _ in range(PACKETS_PER_CONNECTION - 1):
        packet = chooser.choice(packets)
        said.append(packet if chooser.randrange(6) else mutated(packet, chooser))
    return said
