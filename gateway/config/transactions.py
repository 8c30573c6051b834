"""Settings of transactions, ``[transactions]``."""

from typing import Final, Literal

from pydantic import Field

from gateway.config.base import FrozenConfig

_DAY_MS: Final = 86_400_000


class TransactionsConfig(FrozenConfig):
    """Transactions of Kafka producers."""

    protocol: Literal[1, 2] = Field(
        default=2,
        description="Highest version of the protocol that clients are offered; 2 is KIP-890's, "
        "where each transaction has an epoch of its own.",
    )
    timeout_ms_max: int = Field(
        default=900_000,
        ge=1_000,
        description="Longest transaction timeout that a producer may ask for.",
    )
    partitions_max: int = Field(
        default=10_000, ge=1, description="Partitions and groups of one transaction."
    )
    ids_max: int = Field(
        default=100_000, ge=1, description="Transactional ids; more are refused."
    )
    id_expiration_ms: int = Field(
        default=7 * _DAY_MS,
        ge=1_000,
        description="Milliseconds after its last use for which a transactional id is kept.",
    )
