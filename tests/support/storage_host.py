"""The node's side of the storage port, for tests."""

from gateway.model import PartitionIdentity
from gateway.topics.manager import TopicManager


class TopicsHost:
    """A ``StorageHost`` that knows the topics; a fault of the storage fails the test.

    There is no database for an index.
    """

    node_id = 1
    metadata_url = ""
    topics: TopicManager

    def identify(self, partition_id: int) -> PartitionIdentity:
        return self.topics.identify(partition_id)

    def on_fault(self, error: BaseException) -> None:
        raise error
