"""Transaction of a channel: publishes and settlements that take effect at its commit."""

from adapters.amqp.v091.publishing import Plan, PublishedRun
from adapters.amqp.v091.sources import Source
from adapters.amqp.v091.unacked import Unacked
from gateway.queues.model import Outcome


class Transaction:
    """Publishes and settlements since the last commit or rollback."""

    __slots__ = ("publishes", "settlements", "size_bytes")

    def __init__(self) -> None:
        self.publishes: list[tuple[Plan, PublishedRun]] = []
        self.settlements: list[tuple[Unacked[Source], Outcome]] = []
        self.size_bytes = 0

    def publish(self, plan: Plan, run: PublishedRun) -> None:
        """Keep messages that have passed all checks of a publish."""
        self.publishes.append((plan, run))
        self.size_bytes += sum(map(len, run.bodies)) + len(run.publish) + len(run.properties)

    def settle(self, unacked: list[Unacked[Source]], outcome: Outcome) -> None:
        """Keep settlements of messages in flight."""
        self.settlements += [(one, outcome) for one in unacked]

    def take(
        self,
    ) -> tuple[list[tuple[Plan, PublishedRun]], list[tuple[Unacked[Source], Outcome]]]:
        """Return what is kept, and begin anew."""
        taken = self.publishes, self.settlements
        self.publishes, self.settlements = [], []
        self.size_bytes = 0
        return taken
