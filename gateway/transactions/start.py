"""Start of the transaction coordinator of a node."""

from contextlib import AsyncExitStack

from gateway.broker import Broker
from gateway.clock import Clock
from gateway.config.transactions import TransactionsConfig
from gateway.groups.cursors import CursorManager
from gateway.metadata.store import MetadataStore, ProducerIds
from gateway.topics.manager import TopicManager
from gateway.transactions.coordinator import TransactionCoordinator
from gateway.transfer.transfers import Transfers


async def start_transactions(  # noqa: PLR0913, PLR0917 - the parts it joins
    broker: Broker,
    topics: TopicManager,
    cursors: CursorManager,
    transfers: Transfers,
    clock: Clock,
    config: TransactionsConfig,
    metadata: MetadataStore,
    stack: AsyncExitStack,
) -> TransactionCoordinator:
    """Return the coordinator with its transactions loaded; ``stack`` closes it.

    Errors: as ``InternalStream.load``.
    """
    coordinator = await TransactionCoordinator.open(
        broker, topics, cursors, transfers, clock, config, ProducerIds(metadata)
    )
    stack.callback(coordinator.close)
    return coordinator
