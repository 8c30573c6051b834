"""Table of the served APIs: one line each here, one handler file each in this folder.

The response of ApiVersions is built from this table. A handler module has ``API_KEY``,
``VERSIONS`` and ``handle``; it is imported for the first request of its API. It has ``decode``
if the API has a codec written by hand. ``handle`` is called in one of three ways:

- SEQUENTIAL: ``handle(request, session, version)`` returns the response, or an awaitable of it.
  The connection's next request is served after it, as in Apache Kafka.
- DEFERRED: ``handle(request, session, version, reply)`` calls ``reply`` later. The connection's
  next request waits for it.
- PIPELINED: as DEFERRED, but the next request does not wait. Replies are still sent in order.

``handle_large``, if a module has it, is called instead of ``handle`` for a request of more than
``large_requests.SLICE_ELEMENTS`` elements. It is a coroutine that yields to the loop between two
slices; it may call ``reply`` after it has returned.
"""

import threading
from enum import Enum, auto
from importlib import import_module
from types import ModuleType
from typing import Final, NamedTuple

_LOADING: Final = threading.Lock()


class ServingOrder(Enum):
    """Rule for when a connection's next request is served; see the module."""

    SEQUENTIAL = auto()
    DEFERRED = auto()
    PIPELINED = auto()


class Api(NamedTuple):
    """A served API."""

    key: int
    name: str
    versions: range
    module: str
    serving_order: ServingOrder = ServingOrder.SEQUENTIAL
    before_authentication: bool = False


APIS: Final = {
    api.key: api
    for api in (
        Api(0, "Produce", range(3, 14), "produce", ServingOrder.PIPELINED),
        Api(1, "Fetch", range(4, 19), "fetch", ServingOrder.DEFERRED),
        Api(2, "ListOffsets", range(1, 12), "list_offsets"),
        Api(3, "Metadata", range(14), "metadata"),
        Api(8, "OffsetCommit", range(2, 11), "offset_commit", ServingOrder.PIPELINED),
        Api(9, "OffsetFetch", range(1, 11), "offset_fetch"),
        Api(10, "FindCoordinator", range(7), "find_coordinator"),
        Api(11, "JoinGroup", range(10), "join_group"),
        Api(12, "Heartbeat", range(5), "heartbeat"),
        Api(13, "LeaveGroup", range(6), "leave_group"),
        Api(14, "SyncGroup", range(6), "sync_group"),
        Api(15, "DescribeGroups", range(7), "describe_groups"),
        Api(16, "ListGroups", range(6), "list_groups"),
        Api(17, "SaslHandshake", range(2), "sasl_handshake", before_authentication=True),
        Api(18, "ApiVersions", range(5), "api_versions", before_authentication=True),
        Api(19, "CreateTopics", range(2, 8), "create_topics"),
        Api(20, "DeleteTopics", range(1, 7), "delete_topics"),
        Api(21, "DeleteRecords", range(3), "delete_records"),
        Api(22, "InitProducerId", range(6), "init_producer_id"),
        Api(23, "OffsetForLeaderEpoch", range(2, 5), "offset_for_leader_epoch"),
        Api(24, "AddPartitionsToTxn", range(4), "add_partitions_to_txn"),
        Api(25, "AddOffsetsToTxn", range(5), "add_offsets_to_txn"),
        Api(26, "EndTxn", range(6), "end_txn"),
        Api(27, "WriteTxnMarkers", range(1, 3), "write_txn_markers"),
        Api(28, "TxnOffsetCommit", range(6), "txn_offset_commit"),
        Api(29, "DescribeAcls", range(1, 4), "describe_acls"),
        Api(30, "CreateAcls", range(1, 4), "create_acls"),
        Api(31, "DeleteAcls", range(1, 4), "delete_acls"),
        Api(32, "DescribeConfigs", range(1, 5), "describe_configs"),
        Api(33, "AlterConfigs", range(3), "alter_configs"),
        Api(35, "DescribeLogDirs", range(1, 5), "describe_log_dirs"),
        Api(36, "SaslAuthenticate", range(3), "sasl_authenticate", before_authentication=True),
        Api(37, "CreatePartitions", range(4), "create_partitions"),
        Api(42, "DeleteGroups", range(3), "delete_groups"),
        Api(43, "ElectLeaders", range(3), "elect_leaders"),
        Api(44, "IncrementalAlterConfigs", range(2), "incremental_alter_configs"),
        Api(45, "AlterPartitionReassignments", range(2), "alter_partition_reassignments"),
        Api(46, "ListPartitionReassignments", range(1), "list_partition_reassignments"),
        Api(47, "OffsetDelete", range(1), "offset_delete"),
        Api(48, "DescribeClientQuotas", range(2), "describe_client_quotas"),
        Api(49, "AlterClientQuotas", range(2), "alter_client_quotas"),
        Api(50, "DescribeUserScramCredentials", range(1), "describe_user_scram_credentials"),
        Api(51, "AlterUserScramCredentials", range(1), "alter_user_scram_credentials"),
        Api(55, "DescribeQuorum", range(3), "describe_quorum"),
        Api(60, "DescribeCluster", range(3), "describe_cluster"),
        Api(61, "DescribeProducers", range(1), "describe_producers"),
        Api(65, "DescribeTransactions", range(1), "describe_transactions"),
        Api(66, "ListTransactions", range(3), "list_transactions"),
        Api(68, "ConsumerGroupHeartbeat", range(2), "consumer_group_heartbeat"),
        Api(69, "ConsumerGroupDescribe", range(2), "consumer_group_describe"),
        Api(74, "ListConfigResources", range(2), "list_config_resources"),
        Api(75, "DescribeTopicPartitions", range(1), "describe_topic_partitions"),
        Api(76, "ShareGroupHeartbeat", range(1, 2), "share_group_heartbeat"),
        Api(77, "ShareGroupDescribe", range(1, 2), "share_group_describe"),
        Api(78, "ShareFetch", range(1, 3), "share_fetch", ServingOrder.DEFERRED),
        Api(79, "ShareAcknowledge", range(1, 3), "share_acknowledge"),
        Api(90, "DescribeShareGroupOffsets", range(2), "describe_share_group_offsets"),
        Api(91, "AlterShareGroupOffsets", range(1), "alter_share_group_offsets"),
        Api(92, "DeleteShareGroupOffsets", range(1), "delete_share_group_offsets"),
    )
}

ADVERTISED_FROM: Final = {0: 0}
"""Lowest advertised version where it is below the served ones: librdkafka before 2.10 turns
compression off unless Produce starts at 0 (KAFKA-18659)."""


def load(api: Api) -> ModuleType:
    """Import an API's handler module, with its message classes, and return it.

    Safe in any thread. Imports run one at a time: kafka-python's modules import each other, and
    threads that start at different modules would deadlock, which Python reports as an error.
    """
    with _LOADING:
        return import_module(f"{__name__}.{api.module}")
