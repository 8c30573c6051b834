"""Start of a node's exchanges."""

from contextlib import AsyncExitStack

from gateway.broker import Broker
from gateway.clock import Clock
from gateway.coalescer import Coalescer
from gateway.config.settings import Settings
from gateway.exchanges.declared import make_exchanges
from gateway.exchanges.manager import Exchanges
from gateway.exchanges.publisher import Publisher
from gateway.metadata.store import MetadataStore
from gateway.topics.manager import TopicManager
from gateway.transfer.transfers import Transfers


async def start_exchanges(  # noqa: PLR0913, PLR0917 - the parts of the kernel that they need
    metadata: MetadataStore,
    topics: TopicManager,
    broker: Broker,
    coalescer: Coalescer,
    transfers: Transfers,
    clock: Clock,
    settings: Settings,
    stack: AsyncExitStack,
) -> Publisher:
    """Load the exchanges, make those that the config declares, and return their publisher.

    ``coalescer``: that of queues' messages, so that dead letters keep their order with these.
    Errors: those of ``Exchanges.open`` and ``make_exchanges``.
    """
    exchanges = await Exchanges.open(metadata, topics, clock, settings.exchange)
    stack.push_async_callback(exchanges.close)
    await make_exchanges(
        exchanges, settings.exchanges, settings.bindings, settings.node.declared
    )
    return Publisher(exchanges, topics, broker, coalescer, transfers, clock)
