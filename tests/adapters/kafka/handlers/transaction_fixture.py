"""Rig with a transactional producer that calls the handlers."""

import asyncio
from typing import Any

from kafka.protocol.consumer import OffsetFetchRequest
from kafka.protocol.producer import AddPartitionsToTxnRequest, TxnOffsetCommitRequest

from adapters.kafka.errors import ErrorCode
from adapters.kafka.producing.batch_appends import Outcomes, append_batches
from adapters.kafka.producing.produce_results import produce_results
from adapters.kafka.producing.producer_transaction import ProducerTransaction
from gateway.errors import GatewayError
from gateway.topics.manager import Topic
from tests.adapters.kafka.handlers.group_fixture import GROUP, GroupRig
from tests.support.batches import sample_batch

TX = "tx"
NONE = ErrorCode.NONE


class TransactionRig:
    """Producer that calls the handlers, and the group rig below it."""

    def __init__(self, groups: GroupRig, topic: Topic) -> None:
        self.groups = groups
        self.rig = groups.rig
        self.ask = groups.rig.ask
        self.topic = topic
        self.producer_id = self.epoch = -1
        self.sequences: dict[int, int] = {}

    async def init(self, version: int = 5, *, name: str = TX, **fields: Any) -> Any:
        asked: dict[str, Any] = {
            "transactional_id": name,
            "transaction_timeout_ms": 60_000,
        } | fields
        answer = await self.ask("init_producer_id", version, **asked)
        self.producer_id, self.epoch = int(answer.producer_id), answer.producer_epoch
        self.sequences.clear()
        return answer

    async def add(
        self, version: int, *numbers: int, topic: str = "t", **fields: Any
    ) -> list[int]:
        kind = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        asked: dict[str, Any] = {
            "v3_and_below_transactional_id": TX,
            "v3_and_below_producer_id": self.producer_id,
            "v3_and_below_producer_epoch": self.epoch,
            "v3_and_below_topics": [kind(name=topic, partitions=list(numbers))],
        }
        answer = await self.ask("add_partitions_to_txn", version, **(asked | fields))
        [found] = answer.results_by_topic_v3_and_below
        return [one.partition_error_code.value for one in found.results_by_partition]

    async def produce(
        self, version: int, number: int = 0, *, name: str = TX, **batch: Any
    ) -> tuple[int, int]:
        """Append a batch; return its error code and base offset."""
        sequence = self.sequences.get(number, 0)
        asked: dict[str, Any] = {
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "base_sequence": sequence,
            "is_transactional": True,
        }
        outcomes: Outcomes = []
        done: asyncio.Future[GatewayError | None] = asyncio.Future()
        append_batches(
            self.rig.session,
            [("t", [(number, memoryview(sample_batch(**(asked | batch))))])],
            ProducerTransaction(self.rig.session, name, version),
            version,
            outcomes,
            (),
            done.set_result,
        )
        [(_, [result])] = produce_results(outcomes, await done)
        if result.error_code == NONE:
            self.sequences[number] = sequence + 1
        return int(result.error_code), result.base_offset

    async def add_group(self, version: int = 3, group: str = GROUP) -> int:
        answer = await self.ask(
            "add_offsets_to_txn",
            version,
            transactional_id=TX,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group,
        )
        return int(answer.error_code.value)

    async def commit_offset(self, version: int, offset: int, **fields: Any) -> int:
        kind = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        part = kind.TxnOffsetCommitRequestPartition
        asked: dict[str, Any] = {
            "transactional_id": TX,
            "group_id": GROUP,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "topics": [
                kind(
                    name="t",
                    partitions=[part(partition_index=0, committed_offset=offset)],
                )
            ],
        }
        answer = await self.ask("txn_offset_commit", version, **(asked | fields))
        return int(answer.topics[0].partitions[0].error_code.value)

    async def fetch_offset(self, *, stable: bool) -> tuple[int, int]:
        """Return the error code and the offset that OffsetFetch gives."""
        kind = OffsetFetchRequest.OffsetFetchRequestTopic
        answer = await self.ask(
            "offset_fetch",
            7,
            group_id=GROUP,
            topics=[kind(name="t", partition_indexes=[0])],
            require_stable=stable,
        )
        one = answer.topics[0].partitions[0]
        return int(one.error_code.value), int(one.committed_offset)

    async def end(self, version: int = 5, *, commit: bool = True, **fields: Any) -> Any:
        asked: dict[str, Any] = {
            "transactional_id": TX,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "committed": commit,
        }
        answer = await self.ask("end_txn", version, **(asked | fields))
        if version >= 5 and answer.error_code.value == NONE:
            self.producer_id, self.epoch = int(answer.producer_id), answer.producer_epoch
            self.sequences.clear()
        return answer
