"""Description of a queue: its topic, and its row in the metadata store."""

from gateway.model import TopicName
from gateway.queues.model import EarlierDelay, QueueRow
from gateway.queues.purge_offsets import PURGED
from gateway.topics.manager import Topic


class QueueDescription:
    """Topic and row of a queue. ``settings`` are those of the row."""

    def __init__(self, topic: Topic, row: QueueRow) -> None:
        self.topic = topic
        self.row = row
        self.settings = row.settings

    @property
    def name(self) -> TopicName:
        """The topic's name."""
        return self.topic.name

    @property
    def group(self) -> str:
        """The queue group's name."""
        return self.row.group

    @property
    def attributes(self) -> dict[str, str]:
        """Attributes kept by protocols beside the settings; see ``QueueRow``."""
        return self.row.attributes

    @property
    def tags(self) -> dict[str, str]:
        """Tags set by the owner."""
        return self.row.tags

    @property
    def earlier_delays(self) -> tuple[EarlierDelay, ...]:
        """Former delays, still valid for messages sent before the change."""
        return self.row.earlier_delays

    @property
    def owns_topic(self) -> bool:
        """Whether the topic is deleted with the queue."""
        return self.row.owns_topic

    @property
    def created_unix_ms(self) -> int:
        """Creation time."""
        return self.row.created_unix_ms

    @property
    def changed_unix_ms(self) -> int:
        """Time of the last change."""
        return self.row.changed_unix_ms

    @property
    def protocol(self) -> str:
        """Protocol that keeps attributes with the queue; empty when none does."""
        names = (name for name in self.row.attributes if name != PURGED)
        return next(names, "").partition(".")[0]
