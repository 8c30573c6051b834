"""Checks of replica counts and manual assignments: every partition has one replica, its leader.

The storage provides durability. A request for more replicas is refused with Apache Kafka's
messages, because tools match on them.
"""

from collections.abc import Sequence
from typing import Final

from adapters.kafka.errors import ErrorCode, Refused
from gateway.placement import Placement

DEFAULT: Final = -1  # the broker's default
REPLICAS: Final = 1


def check_replication_factor(factor: int) -> None:
    """Check that the factor is 1 or the default.

    Error: ``Refused``, INVALID_REPLICATION_FACTOR.
    """
    if factor in {DEFAULT, REPLICAS}:
        return
    if factor < 1:
        msg = "Replication factor must be larger than 0, or -1 to use the default value."
    else:
        msg = (
            f"Unable to replicate the partition {factor} time(s): The target replication "
            f"factor of {factor} cannot be reached because only {REPLICAS} replica(s) are kept."
        )
    raise Refused(ErrorCode.INVALID_REPLICATION_FACTOR, msg)


def check_assignment(number: int, broker_ids: Sequence[int], placement: Placement) -> None:
    """Check that one known broker is assigned. Error: ``Refused``, INVALID_REPLICA_ASSIGNMENT."""
    known = {node.node_id for node in placement.nodes()}
    if not broker_ids:
        msg = f"The manual partition assignment of partition {number} includes no replica."
    elif unknown := sorted(set(broker_ids) - known):
        msg = (
            f"The manual partition assignment of partition {number} includes broker "
            f"{unknown[0]}, but no such broker is registered."
        )
    elif len(broker_ids) > REPLICAS:
        msg = (
            f"The manual partition assignment of partition {number} has more than one replica."
        )
    else:
        return
    raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, msg)
