"""Random and mutated AMQP 0-9-1 frames of faulty clients."""

import random
from typing import Final

from adapters.amqp.v091.fields import EMPTY, Field, Table
from adapters.amqp.v091.framing import (
    HEARTBEAT_FRAME,
    PROTOCOL_HEADER,
    encode_content,
    encode_method_frame,
)
from adapters.amqp.v091.methods.basic import (
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicGet,
    BasicNack,
    BasicPublish,
    BasicQos,
    BasicRecover,
    BasicReject,
)
from adapters.amqp.v091.methods.channel import ChannelClose, ChannelFlow, ChannelOpen
from adapters.amqp.v091.methods.confirm import ConfirmSelect
from adapters.amqp.v091.methods.connection import (
    ConnectionClose,
    ConnectionOpen,
    ConnectionStartOk,
    ConnectionTuneOk,
)
from adapters.amqp.v091.methods.exchange import ExchangeBind, ExchangeDeclare, ExchangeDelete
from adapters.amqp.v091.methods.model import Method
from adapters.amqp.v091.methods.queue import (
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    QueueUnbind,
)
from adapters.amqp.v091.methods.tx import TxCommit, TxRollback, TxSelect
from adapters.amqp.v091.properties import Properties, encode_properties
from tests.support.hostile.users import User

FRAMES_PER_CONNECTION: Final = 24
FRAME_BYTES_MAX: Final = 131_072
WRONG_PASSWORD_EVERY: Final = 20  # its answer is delayed
CHANNELS: Final = 3
GUEST: Final = User("guest", "guest")
LAST: Final = encode_method_frame(0, ConnectionClose(200, "", 0, 0))
"""Frame whose answer ends a connection."""
_CLOSE_OK: Final = bytes.fromhex("000a0033ce")
_NAMES: Final = ("fuzz-0", "fuzz-1", "fuzz-stream", "", "amq.topic", "amq.rabbitmq.reply-to")
_HEADERS: Final = Table(
    [
        ("CC", Field("A", (Field("S", "fuzz-1"), Field("S", "fuzz-stream")))),
        ("n", Field("I", -5)),
        ("deep", Field("F", Table([("a", Field("A", (Field("x", b"\0\xff"),)))]))),
        ("x-delay", Field("l", 1)),
    ]
)
_PROPERTIES: Final = (
    Properties(),
    Properties("text/plain", "gzip", _HEADERS, 2, 5, "c", "amq.rabbitmq.reply-to", "100", "m"),
    Properties(reply_to="q", timestamp=1 << 40, type="t", user_id="guest", app_id="a"),
)
_QUEUE_FLAGS: Final = ("passive", "durable", "exclusive", "auto_delete", "nowait")
_EXCHANGE_FLAGS: Final = ("passive", "durable", "auto_delete", "internal", "nowait")
_STREAM: Final = Table([("x-queue-type", Field("S", "stream"))])
_FIRST: Final = Table([("x-stream-offset", Field("S", "first"))])


def greeting(user: User | None, *, is_right: bool = True) -> list[bytes]:
    """Return a login, and three open channels."""
    who = user or GUEST
    password = who.password if is_right else "wrong"
    plain = f"\0{who.name}\0{password}".encode()
    return [
        PROTOCOL_HEADER,
        encode_method_frame(0, ConnectionStartOk(EMPTY, "PLAIN", plain, "en_US")),
        encode_method_frame(0, ConnectionTuneOk(2_047, FRAME_BYTES_MAX, 0)),
        encode_method_frame(0, ConnectionOpen("/")),
        *(encode_method_frame(number, ChannelOpen()) for number in range(1, CHANNELS + 1)),
    ]


def _some(chooser: random.Random, names: tuple[str, ...]) -> dict[str, bool]:
    """Return flags, of which few are set."""
    return {name: chooser.randrange(8) == 0 for name in names}


def valid_frames(chooser: random.Random) -> list[bytes]:
    """Return methods that a client sends, on one of its channels."""
    number = chooser.randrange(1, CHANNELS + 1)
    name, other = chooser.choice(_NAMES), chooser.choice(_NAMES)
    key = chooser.choice((name, "a.b", "#", ""))
    flags = [chooser.randrange(8) == 0 for _ in range(4)]
    tag = chooser.choice((0, 1, 2, 1 << 63))
    off = dict.fromkeys(("passive", "exclusive", "auto_delete", "nowait"), False)
    consuming = dict.fromkeys(("no_local", "no_ack", "exclusive", "nowait"), False)
    is_multiple = flags[0]
    kind = chooser.choice(("topic", "x"))
    methods: list[Method] = [
        QueueDeclare(0, "fuzz-0", durable=True, arguments=EMPTY, **off),
        QueueDeclare(0, "fuzz-stream", durable=True, arguments=_STREAM, **off),
        QueueDeclare(0, name, arguments=EMPTY, **_some(chooser, _QUEUE_FLAGS)),
        ExchangeDeclare(0, other, kind, arguments=EMPTY, **_some(chooser, _EXCHANGE_FLAGS)),
        ExchangeBind(0, name, other, key, nowait=flags[0], arguments=EMPTY),
        ExchangeDelete(0, name, if_unused=flags[0], nowait=flags[1]),
        QueueBind(0, name, "amq.topic", key, nowait=flags[0], arguments=EMPTY),
        QueueUnbind(0, name, "amq.topic", key, arguments=EMPTY),
        QueuePurge(0, name, nowait=flags[0]),
        QueueDelete(0, name, if_unused=flags[0], if_empty=flags[1], nowait=flags[2]),
        BasicQos(0, chooser.choice((0, 1, 65_535)), global_=flags[0]),
        BasicConsume(0, name, "", arguments=EMPTY, **{**consuming, "no_ack": flags[0]}),
        BasicConsume(0, "fuzz-stream", "", arguments=_FIRST, **consuming),
        BasicCancel("c", nowait=flags[0]),
        BasicGet(0, name, no_ack=flags[0]),
        BasicAck(tag, multiple=is_multiple),
        BasicNack(tag, multiple=is_multiple, requeue=flags[1]),
        BasicReject(tag, requeue=flags[0]),
        BasicRecover(requeue=True),
        ConfirmSelect(nowait=flags[0]),
        TxSelect(),
        TxCommit(),
        TxRollback(),
        ChannelFlow(active=True),
        ChannelClose(200, "bye", 0, 0),
        ChannelOpen(),
    ]
    publish = BasicPublish(
        0, chooser.choice(("", "amq.topic")), key, mandatory=True, immediate=False
    )
    content = encode_content(
        number,
        encode_properties(chooser.choice(_PROPERTIES)),
        chooser.randbytes(chooser.choice((0, 1, 200))),
        FRAME_BYTES_MAX,
    )
    published = [encode_method_frame(number, publish) + b"".join(content)] * 4
    return [HEARTBEAT_FRAME, *(encode_method_frame(number, one) for one in methods), *published]


def mutated(frame: bytes, chooser: random.Random) -> bytes:
    """Return frames with a few faults; the first one's size mostly says the truth."""
    data = bytearray(frame)
    for _ in range(chooser.randrange(1, 4)):
        at = chooser.randrange(len(data)) if data else 0
        kind = chooser.randrange(5)
        if kind == 0 and data:
            data[at] ^= 1 << chooser.randrange(8)
        elif kind == 1:
            del data[at:]
        elif kind == 2:
            data[at:at] = chooser.randbytes(chooser.randrange(1, 16))
        elif kind == 3:
            edge = chooser.choice([b"\x00\x00", b"\xff\xff\xff\xff", b"\xed\xa0", b"\xce"])
            data[at : at + len(edge)] = edge
        else:
            data[0:1] = chooser.randbytes(1)  # another type of frame
    if chooser.randrange(4) and len(data) > 8:
        data[3:7] = (len(data) - 8).to_bytes(4, "big")
        data[-1] = 0xCE
    return bytes(data)


def thrown_at_once(chooser: random.Random, user: User | None = None) -> list[bytes]:
    """Return what one faulty client says: a login, which mostly is in order, and more."""
    said = greeting(user)
    if chooser.randrange(10) == 0:
        at = chooser.randrange(1, len(said))
        said[at] = mutated(said[at], chooser)
    return said + _frames_behind(chooser)


def words(chooser: random.Random, user: User | None) -> list[bytes]:
    """Return the frames of a connection, the last of them ``connection.close``."""
    if user is not None:
        return [*thrown_at_once(chooser, user), LAST]
    is_right = chooser.randrange(WRONG_PASSWORD_EVERY) != 0
    said = greeting(None, is_right=is_right)
    if chooser.randrange(2):
        said[1] = mutated(said[1], chooser)
    return [*said, *_frames_behind(chooser), LAST]


def is_answered(tail: bytes) -> bool:
    """Say whether ``connection.close-ok`` has come."""
    return _CLOSE_OK in tail


def _frames_behind(chooser: random.Random) -> list[bytes]:
    said = []
    for _ in range(FRAMES_PER_CONNECTION):
        frame = chooser.choice(valid_frames(chooser))
        said.append(frame if chooser.randrange(8) else mutated(frame, chooser))
    return said
