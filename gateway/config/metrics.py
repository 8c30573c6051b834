"""Settings of metrics: ``[metrics]``."""

from pydantic import Field

from gateway.config.base import FrozenConfig


class MetricsConfig(FrozenConfig):
    """Series of `/metrics` that have a label for each topic, queue or consumer group."""

    topics_max: int = Field(
        default=100,
        ge=1,
        le=1_000,
        description="Topics with series of their own: the first that are used after a start. The "
        "others share the label `other`.",
    )
    topics: tuple[str, ...] = Field(
        default=(),
        max_length=1_000,
        description="Names of the topics that may have series of their own, with `*` and `?`: "
        '`["orders", "pay-*"]`. Empty: any.',
    )
    queues_max: int = Field(
        default=100,
        ge=1,
        le=1_000,
        description="Queues with series of their own: the first that are used after a start. The "
        "others share the label `other`.",
    )
    queues: tuple[str, ...] = Field(
        default=(),
        max_length=1_000,
        description="Names of the queues that may have series of their own, with `*` and `?`. "
        "Empty: any.",
    )
    groups_max: int = Field(
        default=100,
        ge=1,
        le=1_000,
        description="Pairs of a consumer group and a topic with series of their own: those with "
        "the largest lag. The others share the label `other`.",
    )
    groups: tuple[str, ...] = Field(
        default=(),
        max_length=1_000,
        description="Names of the consumer groups that may have series of their own, with `*` and "
        "`?`. Empty: any.",
    )
    positions_max: int = Field(
        default=100_000,
        ge=1,
        le=1_000_000,
        description="Committed offsets looked at for the lag of groups in one scrape; "
        "`headgate_group_positions_left_out` says how many were not.",
    )
    age_reads_max: int = Field(
        default=64,
        ge=0,
        le=1_000,
        description="Batches read in one scrape to learn how old the first unread messages of "
        "groups and queues are; with storage in S3 each may be a GET. 0: ages come from memory "
        "only.",
    )
