"""Transactions of Kafka producers: states, epochs and outcomes of one transactional id, pure.

The rules are those of Apache Kafka's transaction coordinator (KIP-98, KIP-360, KIP-588, KIP-890):
``model`` has the states, ``initialising`` gives out epochs, ``adding`` begins and extends a
transaction, ``ending`` decides its outcome. A function takes the present value and returns the
next one; it changes nothing when it raises an error.
"""

from features.transactions.adding import add, check_group, check_producer, check_written
from features.transactions.ending import Ending, complete, end, fence, prepare
from features.transactions.initialising import (
    InitRequest,
    check_init,
    initialise,
    needs_producer_id,
)
from features.transactions.model import (
    EPOCH_MAX,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIME,
    GroupRef,
    PartitionRef,
    State,
    Transaction,
)

__all__ = [
    "EPOCH_MAX",
    "NO_EPOCH",
    "NO_PRODUCER_ID",
    "NO_TIME",
    "Ending",
    "GroupRef",
    "InitRequest",
    "PartitionRef",
    "State",
    "Transaction",
    "add",
    "check_group",
    "check_init",
    "check_producer",
    "check_written",
    "complete",
    "end",
    "fence",
    "initialise",
    "needs_producer_id",
    "prepare",
]
