"""Registration of the metrics by topic, queue and group, and of what they measure first."""

from gateway.kernel import Kernel
from gateway.monitoring import topic_metrics
from gateway.monitoring.group_metrics import GroupMetrics
from gateway.monitoring.message_age import MessageAges
from gateway.monitoring.queue_metrics import QueueMetrics


def register_metrics(kernel: Kernel) -> None:
    """Register them; ``Metrics.before_scrape`` measures lags, depths and ages."""
    topic_metrics.register_metrics(kernel)
    ages = MessageAges(kernel.broker, reads_max=kernel.settings.metrics.age_reads_max)
    groups = GroupMetrics(kernel, ages)
    queues = QueueMetrics(kernel, ages)
    groups.register()
    queues.register()

    async def measure() -> None:
        ages.begin()
        await groups.measure()
        await queues.measure()

    kernel.metrics.before_scrape.append(measure)
