"""The node's side of the storage port, for tests."""

from gateway.model import PartitionIdentity
from gateway.topics.manager import TopicManager


class NoDatabase:
    """The part of ``gateway.storage.StorageHost`` for an index in a database: there is none."""

    node_id = 1
    metadata_url = ""


class TopicsHost(NoDatabase):
    """A ``StorageHost`` that knows the topics; a fault of the storage fails the test."""

    topics: TopicManager

    def identify(self, partition_id: int) -> PartitionIdentity:
        return self.topics.identify(partition_id)

    def on_fault(self, error: BaseException) -> None:
        raise error
