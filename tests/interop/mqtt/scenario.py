"""Steps of every stock client at the endpoint, and the results that each must get.

Programs in other languages do the same and print what they saw as one JSON object.
"""

import asyncio
import hashlib
from typing import Any, Final

from tests.interop.mqtt.programs.link import (
    V5,
    Endpoint,
    Link,
    Maker,
    Message,
    Properties,
)

LARGE: Final = bytes(range(256)) * 400
USERS: Final = (("b", "1"), ("a", "2"), ("b", "3"), ("\u00e9", "\u2603"))
CARRIED: Final = Properties(
    content_type="text/plain",
    response_topic="answers/here",
    correlation_data=b"\x00\x01\xff",
    user=USERS,
)
IN_ALL: Final = {
    "qos": [["zero", 0], ["one", 1], ["two", 2]],
    "wildcards": ["a", "a/b"],
    "empty": "",
    "large": hashlib.sha256(LARGE).hexdigest(),
    "retained": ["kept", True],
    "retained after removal": "end",
    "unsubscribed": "end",
    "session": ["0", "1", "2"],
    "session present": [False, True],
    "will": "gone",
}
IN_5: Final = {
    "properties": ["text/plain", "answers/here", "0001ff", [list(pair) for pair in USERS]],
    "identifier": [42],
    "expiry": True,
    "shared": ["0", "1", "2", "3", "4", "5"],
    "request and response": ["question", "answer", "c0ffee"],
}


def expected(version: int, *without: str) -> dict[str, Any]:
    """Return what a client sees, less the steps that it cannot do."""
    steps = {**IN_ALL, **(IN_5 if version == V5 else {})}
    return {name: seen for name, seen in steps.items() if name not in without}


class Scenario:
    """The steps for one Python client."""

    def __init__(self, maker: Maker, endpoint: Endpoint, stem: str) -> None:
        self.maker = maker
        self.endpoint = endpoint
        self.stem = stem
        self.seen: dict[str, Any] = {}

    def link(self, suffix: str) -> Link:
        """Return a client of its own."""
        made: Link = self.maker(self.endpoint, f"{self.stem}{suffix}")
        return made

    def topic(self, levels: str) -> str:
        """Return a topic that only this run has."""
        return f"{self.stem}/{levels}"

    async def run(self) -> dict[str, Any]:
        """Do all steps and return what was seen."""
        self.subscriber, self.publisher = self.link("sub"), self.link("pub")
        await self.subscriber.open(clean=True)
        await self.publisher.open(clean=True)
        await self.qualities()
        await self.payloads()
        await self.retained()
        await self.unsubscribed()
        if self.endpoint.version == V5:
            await self.properties()
            await self.shared()
            await self.request_and_response()
        await self.session()
        await self.will()
        await self.subscriber.close()
        await self.publisher.close()
        return self.seen

    async def send(self, levels: str, payload: bytes, qos: int = 1, **more: Any) -> None:
        """Publish to a topic of this run."""
        await self.publisher.publish(Message(self.topic(levels), payload, qos, **more))

    async def got(self) -> str:
        """Return the next payload as text."""
        return (await self.subscriber.inbox.next()).payload.decode()

    async def qualities(self) -> None:
        """QoS 0, 1 and 2 in both directions; wildcards."""
        await self.subscriber.subscribe(self.topic("qos/+"), 2)
        seen = []
        for qos, name in enumerate(("zero", "one", "two")):
            await self.send(f"qos/{name}", name.encode(), qos)
            message = await self.subscriber.inbox.next()
            seen.append([message.payload.decode(), message.qos])
        self.seen["qos"] = seen
        await self.subscriber.subscribe(self.topic("w/#"), 1)
        for levels in ("w/a", "x/a", "w/a/b"):
            await self.send(levels, levels[2:].encode())
        self.seen["wildcards"] = [await self.got(), await self.got()]

    async def payloads(self) -> None:
        """Nothing at all, and a hundred kilobytes."""
        await self.subscriber.subscribe(self.topic("p"), 1)
        await self.send("p", b"")
        self.seen["empty"] = await self.got()
        await self.send("p", LARGE)
        message = await self.subscriber.inbox.next()
        self.seen["large"] = hashlib.sha256(message.payload).hexdigest()

    async def retained(self) -> None:
        """Kept for who comes later; removed by an empty one."""
        await self.send("r", b"kept", retain=True)
        await self.subscriber.subscribe(self.topic("r"), 1)
        message = await self.subscriber.inbox.next()
        self.seen["retained"] = [message.payload.decode(), message.retain]
        await self.send("r", b"", retain=True)
        assert await self.got() == ""
        await self.subscriber.unsubscribe(self.topic("r"))
        await self.subscriber.subscribe(self.topic("r"), 1)
        await self.send("r", b"end")
        self.seen["retained after removal"] = await self.got()

    async def unsubscribed(self) -> None:
        """Nothing comes any more."""
        await self.subscriber.unsubscribe(self.topic("p"))
        await self.send("p", b"nobody's")
        await self.send("r", b"end")
        self.seen["unsubscribed"] = await self.got()

    async def properties(self) -> None:
        """Carry the properties of 5.0, in order and binary; identifiers; expiry."""
        await self.subscriber.subscribe(self.topic("v"), 1, identifier=42)
        await self.send("v", b"x", properties=CARRIED)
        found = (await self.subscriber.inbox.next()).properties
        data = found.correlation_data or b""
        self.seen["properties"] = [
            found.content_type,
            found.response_topic,
            data.hex(),
            [list(pair) for pair in found.user],
        ]
        self.seen["identifier"] = list(found.subscription_identifiers)
        await self.send("v", b"x", properties=Properties(message_expiry_interval=60))
        left_s = (await self.subscriber.inbox.next()).properties.message_expiry_interval
        self.seen["expiry"] = left_s in {59, 60}

    async def shared(self) -> None:
        """Each message of a group goes to one of two members."""
        other = self.link("sub2")
        await other.open(clean=True)
        for member in (self.subscriber, other):
            await member.subscribe(f"$share/group/{self.topic('s')}", 1)
        for n in range(6):
            await self.send("s", b"%d" % n)
        came: list[str] = []
        while len(came) < 6:
            came += await first_of(self.subscriber, other)
        self.seen["shared"] = sorted(came)
        await other.close()
        await self.subscriber.unsubscribe(f"$share/group/{self.topic('s')}")

    async def request_and_response(self) -> None:
        """A question says where its answer goes."""
        await self.publisher.subscribe(self.topic("answers"), 1)
        await self.subscriber.subscribe(self.topic("questions"), 1)
        asked = Properties(
            response_topic=self.topic("answers"), correlation_data=b"\xc0\xff\xee"
        )
        await self.send("questions", b"question", properties=asked)
        question = await self.subscriber.inbox.next()
        await self.subscriber.publish(
            Message(
                question.properties.response_topic or "",
                b"answer",
                1,
                properties=Properties(correlation_data=question.properties.correlation_data),
            )
        )
        answer = await self.publisher.inbox.next()
        data = answer.properties.correlation_data or b""
        seen = [question.payload.decode(), answer.payload.decode(), data.hex()]
        self.seen["request and response"] = seen

    async def session(self) -> None:
        """Keep messages while a client is away, and deliver them in order when it returns."""
        keeper = self.link("keep")
        before = await keeper.open(clean=False)
        await keeper.subscribe(self.topic("k"), 1)
        await keeper.close()
        for n in range(3):
            await self.send("k", b"%d" % n, 1 + n % 2)
        again = self.link("keep")
        after = await again.open(clean=False)
        came = [(await again.inbox.next()).payload.decode() for _ in range(3)]
        self.seen["session"] = came
        if before is not None:
            self.seen["session present"] = [before, after]
        await again.unsubscribe(self.topic("k"))
        await again.close()

    async def will(self) -> None:
        """A client that goes without a word leaves one."""
        await self.subscriber.subscribe(self.topic("will"), 1)
        mortal = self.link("mortal")
        await mortal.open(clean=True, will=Message(self.topic("will"), b"gone", 1))
        await mortal.drop()
        self.seen["will"] = await self.got()


async def first_of(*links: Link) -> list[str]:
    """Return what one of the links gets next, or several do at once."""
    tasks = [asyncio.create_task(link.inbox.next()) for link in links]
    done, waiting = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    return [task.result().payload.decode() for task in done]
