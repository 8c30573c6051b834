"""A receiver of everything that waits for one client: retained messages, or a backlog.

What came is checked after the clock has stopped: each number as often as it was sent, and the
messages of one topic in their order where ``in_order``.
"""

import asyncio
from typing import Final

from benchmarks.clients.mqtt_packets import Table
from benchmarks.clients.mqtt_streams import ANSWER_S_MAX, MqttFault, UniformStream

_DUP: Final = 0x08
_SUBACK: Final = 0x90
_SUBACK_BYTES: Final = 5


class Collector(UniformStream):
    """Acknowledges and keeps the numbers of what comes until ``expected`` have come.

    A SUBACK among the messages (MQTT-3.8.4: they may come first) is taken out.
    """

    def __init__(self, table: Table, expected: int, *, suback: bool) -> None:
        super().__init__(table.length)
        self.numbers: list[tuple[int, ...]] = []
        self.seen = 0
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._table = table
        self._expected = expected
        self._awaits_suback = suback

    def buffer_updated(self, nbytes: int) -> None:
        """See ``asyncio.BufferedProtocol``."""
        if self._awaits_suback:
            nbytes = self._without_suback(nbytes)
        super().buffer_updated(nbytes)

    def take(self, end: int) -> None:
        """Acknowledge and count; what is not a PUBLISH of the table's ends the run."""
        table = self._table
        count = end // table.length
        heads = self.buffer[0 : end : table.length]
        if heads.count(table.first_byte) + heads.count(table.first_byte | _DUP) != count:
            self._fail(f"another packet among the messages: {set(heads)}")
            return
        if table.qos:
            self.write(table.acks_for(self.buffer, end))
        self.numbers.append(table.numbers(self.buffer, end))
        self.seen += count
        if self.seen >= self._expected and not self.over.done():
            self.over.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """See ``asyncio.BufferedProtocol``."""
        super().connection_lost(exc)
        self._fail(f"closed after {self.seen:,} messages: {exc}")

    async def wait(self, *, stalled_s_max: float = ANSWER_S_MAX) -> None:
        """Return when all has come. Error: ``MqttFault`` when nothing more comes."""
        seen = -1
        while not self.over.done():
            if seen == self.seen:
                self._fail(f"{self._expected - seen:,} of {self._expected:,} messages lost")
                break
            seen = self.seen
            await asyncio.wait([self.over], timeout=stalled_s_max)
        self.over.result()

    def check(self, *, sent: int, in_order: bool) -> None:
        """Check that each message came once. Error: ``MqttFault``."""
        count = self._table.count
        times = [0] * count
        last = -1
        for number in (one for some in self.numbers for one in some):
            times[number] += 1
            if in_order and number != (last + 1) % count:
                msg = f"{number} came after {last}"
                raise MqttFault(msg)
            last = number
        if times != [sent // count] * count:
            msg = f"{self.seen:,} came of {sent:,}, some more than once"
            raise MqttFault(msg)

    def _fail(self, fault: str) -> None:
        if not self.over.done():
            self.over.set_exception(MqttFault(fault))

    def _without_suback(self, nbytes: int) -> int:
        """Take SUBACK out of the buffer when it is there; return the bytes that remain."""
        have = self._held + nbytes
        for at in range(0, have, self.length):
            if self.buffer[at] == _SUBACK:
                after = at + _SUBACK_BYTES
                if have < after:
                    return nbytes
                self._awaits_suback = False
                self._view[at : have - _SUBACK_BYTES] = self.buffer[after:have]
                return nbytes - _SUBACK_BYTES
        return nbytes
