"""Transaction of a channel: publishes and settlements that take effect at its commit."""

from typing import Final

from adapters.amqp.v091.errors import AmqpFault, ReplyCode
from adapters.amqp.v091.publishing import Plan, PublishedRun
from adapters.amqp.v091.sources import Source
from gateway.queues.model import Outcome
from gateway.queues.unacked import Unacked

_SETTLEMENT_BYTES: Final = 256  # of memory, for each range of messages


class TransactionRoom:
    """Bytes that the transactions of a connection may gather."""

    __slots__ = ("bytes_max", "size_bytes")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.size_bytes = 0

    def take(self, size_bytes: int) -> None:
        """Count bytes. Error: ``AmqpFault`` 406 above the bound; they are counted all the same."""
        self.size_bytes += size_bytes
        if self.size_bytes > self.bytes_max:
            raise AmqpFault(
                ReplyCode.PRECONDITION_FAILED,
                f"transactions of the connection are larger than {self.bytes_max} bytes",
            )


class Transaction:
    """Publishes and settlements since the last commit or rollback."""

    __slots__ = ("_room", "publishes", "settled_count", "settlements", "size_bytes")

    def __init__(self, room: TransactionRoom) -> None:
        self._room = room
        self.publishes: list[tuple[Plan, PublishedRun]] = []
        self.settlements: list[tuple[Unacked[Source], Outcome]] = []
        self.settled_count = 0
        """Messages of ``settlements``, which are in flight until the commit."""
        self.size_bytes = 0

    def publish(self, plan: Plan, run: PublishedRun) -> None:
        """Keep messages that have passed all checks of a publish. Error: ``AmqpFault`` 406."""
        self.publishes.append((plan, run))
        self._count(sum(map(len, run.bodies)) + len(run.publish) + len(run.properties))

    def settle(self, unacked: list[Unacked[Source]], outcome: Outcome) -> None:
        """Keep settlements of messages in flight. Error: ``AmqpFault`` 406."""
        self.settlements += [(one, outcome) for one in unacked]
        self.settled_count += sum(one.size for one in unacked)
        self._count(_SETTLEMENT_BYTES * len(unacked))

    def _count(self, size_bytes: int) -> None:
        self.size_bytes += size_bytes
        self._room.take(size_bytes)

    def take(
        self,
    ) -> tuple[list[tuple[Plan, PublishedRun]], list[tuple[Unacked[Source], Outcome]]]:
        """Return what is kept, and begin anew."""
        taken = self.publishes, self.settlements
        self.publishes, self.settlements = [], []
        self.settled_count = 0
        self._room.size_bytes -= self.size_bytes
        self.size_bytes = 0
        return taken
