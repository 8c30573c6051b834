"""State shared by all connections of the endpoint: queues by name, owners of exclusive queues."""

import platform
import shutil
from collections import Counter
from collections.abc import Sequence
from typing import Final, Protocol

from adapters.amqp.config import AmqpConfig
from adapters.amqp.disk_alarm import DiskAlarm
from adapters.amqp.names import to_topic_name
from adapters.amqp.policies import QueuePolicies
from adapters.amqp.queues import NODE, Declaration, locked
from adapters.amqp.replies import Requesters
from adapters.amqp.streams import Streams
from adapters.amqp.topic_permissions import TopicPermissions
from adapters.amqp.user_tags import UserTags
from adapters.amqp.users import AmqpUsers
from adapters.amqp.v091.errors import AmqpFault, ReplyCode
from adapters.amqp.v091.fields import Table, to_table
from adapters.amqp.v091.shown import to_columns
from adapters.amqp.vhost_permissions import VhostPermissions
from adapters.amqp.vhosts import Vhosts
from gateway.auth.rules import RuleBook
from gateway.budget import Budget
from gateway.installation import installed_version
from gateway.kernel import Kernel
from gateway.metadata.changes import Changes
from gateway.metadata.documents import Documents
from gateway.model import Record
from gateway.monitoring.request_latency import RequestLatency
from gateway.partition import Partition
from gateway.policies.manager import Policies
from gateway.queues.manager import Queue
from gateway.queues.shown_forms import Columns, Show
from gateway.queues.transient import TransientQueues

_CAPABILITIES: Final = (
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "consumer_priorities",
    "authentication_failure_close",
    "per_consumer_qos",
    "direct_reply_to",
)


class Client(Protocol):
    """Connection, as the node sees it: its user, and the vhost it has opened."""

    vhost: str
    namespace: str
    holder: int
    user_name: str


class AmqpNode:
    """The node's part of the adapter. Loop only."""

    def __init__(self, config: AmqpConfig, kernel: Kernel) -> None:
        self.config = config
        self.kernel = kernel
        self.body_budget = Budget(
            "request", config.request_bytes_budget, stall_s_max=config.request_stall_s_max
        )
        data_dir = kernel.settings.node.data_dir
        self.disk_alarm = DiskAlarm(kernel.clock, lambda: shutil.disk_usage(data_dir).free)
        self.changes = Changes()
        self.transient = TransientQueues(
            kernel.queues, kernel.topics, kernel.broker, kernel.clock
        )
        """Maker of queues that are not durable."""
        self.requesters = Requesters()
        self.documents = Documents(kernel.metadata)
        self.vhosts = Vhosts(config, self.documents)
        self.permissions = VhostPermissions(kernel)
        self.tags = UserTags(kernel, self.documents)
        self.users = AmqpUsers(kernel, self.tags, self.permissions)
        self.topic_permissions = TopicPermissions(self.documents, self._forget_answers)
        lease_ms = config.consumer_timeout_s * 1_000
        self.policies = QueuePolicies(kernel, Policies(self.documents), self.changes, lease_ms)
        self.reserved_prefixes = kernel.contributions.header_prefixes
        self.streams = Streams(kernel.topics, kernel.broker, self.reserved_prefixes)
        self.show: Show = self._show
        """The form of messages that queues keep; the same function each time."""
        self.server_properties = _server_properties(config)
        self.requests: Counter[str] = Counter()
        """Count of requests, by method."""
        self.published = 0
        self.returned = 0
        """Messages that were published, and those that came back unroutable, since the start."""
        self.started_ms = kernel.clock.monotonic_ms()
        self.opened: set[Client] = set()
        """Connections that have opened a vhost."""
        self.latency = RequestLatency()
        self._owners: dict[Queue, Client] = {}
        self._owned: dict[Client, set[Queue]] = {}
        self._leaving: set[Queue] = set()  # whose deletion has begun

    def _forget_answers(self) -> None:
        """Let connections ask anew what their users may do."""
        if isinstance(self.kernel.authorizer, RuleBook):
            self.kernel.authorizer.forget_answers()

    def _show(self, _partition: Partition, records: Sequence[Record]) -> Columns:
        return to_columns(records, self.reserved_prefixes)

    @property
    def node_id(self) -> str:
        """Id of this node, as it is kept with queues that end with it."""
        return str(self.kernel.placement.node_id)

    # --- queues

    def find_queue(self, connection: Client, name: str) -> Queue | None:
        """Return a queue of a connection's vhost. Error: ``AmqpFault`` 405 for another's own."""
        queue = self.kernel.queues.find(to_topic_name(connection.namespace, name))
        if queue is None or queue in self._leaving:
            return None
        self.check_owner(connection, queue, name)
        return queue

    def get_queue(self, connection: Client, name: str) -> Queue:
        """Return a queue of a connection's vhost. Errors: ``AmqpFault`` 404 and 405."""
        queue = self.find_queue(connection, name)
        if queue is None:
            text = f"no {queue_resource(connection, name)}"
            raise AmqpFault(ReplyCode.NOT_FOUND, text)
        return queue

    def check_owner(self, connection: Client, queue: Queue, name: str) -> None:
        """Check that a queue is not another connection's own. Error: ``AmqpFault`` 405."""
        declared = Declaration.of(queue)
        is_exclusive = declared is not None and declared.exclusive
        if is_exclusive and self._owners.get(queue) is not connection:
            raise locked(queue_resource(connection, name))

    def own(self, connection: Client, queue: Queue) -> None:
        """Give a connection a queue that ends with it."""
        self._owners[queue] = connection
        self._owned.setdefault(connection, set()).add(queue)

    def forget(self, connection: Client) -> None:
        """Forget a connection, and delete the queues that end with it; its leases end unnoticed."""
        self.opened.discard(connection)
        self.kernel.queues.forget_holder(connection.holder)
        for queue in self._owned.pop(connection, ()):
            del self._owners[queue]
            self.delete_soon(queue)

    def delete_soon(self, queue: Queue) -> None:
        """Delete a queue; from now on it is not found, and a declaration makes a new one."""
        if self.transient.delete(queue):
            return
        if not queue.is_gone and queue not in self._leaving:
            self._leaving.add(queue)
            self.changes.start(self._delete, queue)

    async def _delete(self, queue: Queue) -> None:
        try:
            if not queue.is_gone:
                await self.kernel.queues.delete(queue)
        finally:
            self._leaving.discard(queue)

    async def delete_queue(self, queue: Queue) -> None:
        """Delete a queue. Errors: those of ``QueueManager.delete``."""
        owner = self._owners.pop(queue, None)
        if owner is not None:
            self._owned[owner].discard(queue)
        if not self.transient.delete(queue):
            await self.kernel.queues.delete(queue)

    def consumer_left(self, queue: Queue) -> None:
        """Delete a queue with ``auto_delete`` after its last consumer."""
        if queue.is_gone or len(queue.consumers):
            return
        declared = Declaration.of(queue)
        if declared is not None and declared.auto_delete:
            self.delete_soon(queue)

    # --- a start

    async def load(self) -> None:
        """Load vhosts, tags and policies. Error: ``StorageUnavailable``."""
        await self.documents.load()
        self.policies.start()

    async def delete_left_over(self) -> None:
        """Delete queues of connections that a crash has ended, and those not durable.

        Those of other nodes, which may serve them, stay.
        """
        for queue in self.kernel.queues.everything():
            declared = Declaration.of(queue)
            if declared is None or (declared.durable and not declared.exclusive):
                continue
            if queue.attributes.get(NODE, self.node_id) == self.node_id:
                await self.kernel.queues.delete(queue)


def queue_resource(connection: Client, name: str) -> str:
    """Return a queue's name as error texts have it."""
    return f"queue '{name}' in vhost '{connection.vhost}'"


def exchange_resource(connection: Client, name: str) -> str:
    """Return an exchange's name as error texts have it."""
    return f"exchange '{name}' in vhost '{connection.vhost}'"


def _server_properties(config: AmqpConfig) -> Table:
    return to_table(
        {
            "capabilities": dict.fromkeys(_CAPABILITIES, True),
            "cluster_name": "headgate",
            "copyright": "Copyright of Headgate's authors.",
            "information": "Licensed as its LICENSE says.",
            "platform": f"Python {platform.python_version()}",
            "product": config.product,
            "version": config.product_version or installed_version(),
        }
    )
