"""Start of the quotas: those of the config file, and the stored ones."""

from contextlib import AsyncExitStack

from gateway.clock import Clock
from gateway.config.settings import Settings
from gateway.metadata.store import MetadataStore
from gateway.metrics import Metrics
from gateway.quotas.declared import declared_quotas
from gateway.quotas.manager import Quotas


async def start_quotas(
    metadata: MetadataStore,
    clock: Clock,
    settings: Settings,
    metrics: Metrics,
    stack: AsyncExitStack,
) -> Quotas:
    """Return the loaded quotas. Errors: ``InvalidSettings``, ``StorageUnavailable``."""
    quotas = Quotas(metadata, clock)
    quotas.declare(declared_quotas(settings.quotas))
    await quotas.load()
    stack.push_async_callback(quotas.close)
    quotas.register_metrics(metrics)
    return quotas
