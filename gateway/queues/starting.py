"""Start of the queues of a node, with those that the config names."""

from contextlib import AsyncExitStack

from gateway.broker import Broker
from gateway.clock import Clock
from gateway.config.settings import Settings
from gateway.metadata.store import MetadataStore
from gateway.queues.dead_letter_targets import DeadLetterRoutes
from gateway.queues.declared import make_queues
from gateway.queues.exchange_delays import ExchangeDelays
from gateway.queues.manager import QueueManager
from gateway.topics.manager import TopicManager
from gateway.transfer.transfers import Transfers


async def start_queues(  # noqa: PLR0913, PLR0917 - the parts of the kernel before it
    broker: Broker,
    topics: TopicManager,
    clock: Clock,
    metadata: MetadataStore,
    settings: Settings,
    transfers: Transfers,
    stack: AsyncExitStack,
) -> QueueManager:
    """Open queues, which ``stack`` closes, and make the declared queues."""
    queues = await QueueManager.open(
        broker,
        topics,
        clock,
        metadata,
        settings.queue,
        transfers=transfers,
        metrics=settings.metrics,
    )
    stack.push_async_callback(queues.close)
    await make_queues(queues, topics, settings.queues)
    return queues


async def start_routing(
    queues: QueueManager,
    topics: TopicManager,
    broker: Broker,
    routes: DeadLetterRoutes,
    stack: AsyncExitStack,
) -> None:
    """Route dead letters and due messages through exchanges, which are loaded."""
    queues.dead_letters.routes = routes
    delays = await ExchangeDelays.open(queues, topics, broker.placement)
    routes.delay_topic = delays.topic
    delays.start()
    stack.callback(delays.close)
