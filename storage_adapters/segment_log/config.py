"""Settings of the segment log: the keys of ``[storage]`` beside ``adapter``."""

from typing import Literal, Self

from pydantic import Field, model_validator

from gateway.config.base import FrozenConfig

_MIB = 1024 * 1024


class SegmentLogConfig(FrozenConfig):
    """Sizes and the flush policy. Every limit has a number; none is infinite."""

    flush: Literal["group", "interval", "never"] = Field(
        default="group",
        description="Failures that an acknowledged record survives: `group` a power loss (one "
        "fdatasync for all waiting appends), `interval` a crash of the process, and a power "
        "loss except for the last `flush_interval_ms`, `never` a crash of the process.",
    )
    flush_interval_ms: int = Field(
        default=1_000, ge=10, description='Time between two syncs, with `flush = "interval"`.'
    )
    io_uring: bool = Field(
        default=True,
        description='With `flush = "group"`: write and sync small groups by io_uring, if the '
        "system allows it (Linux 5.6 or newer, on x86-64); otherwise by a thread.",
    )
    segment_bytes: int = Field(
        default=128 * _MIB,
        ge=_MIB,
        le=1024 * _MIB,
        description="Size of a segment file; also the bound of one atomic append.",
    )
    reserve_bytes: int = Field(
        default=64 * _MIB,
        ge=0,
        description="Reserved on a full disk for acknowledgements, commits and deletes.",
    )
    open_files_max: int = Field(
        default=256, ge=8, description="Bound of closed segments that are open for reading."
    )
    footers_max: int = Field(
        default=512, ge=8, description="Bound of footers of closed segments that are mapped."
    )
    extents_max: int = Field(
        default=16_384,
        ge=1,
        description="Partitions whose list of closed segments is kept in memory.",
    )
    scrub_bytes_per_s: int = Field(
        default=4 * _MIB,
        ge=0,
        description="Once a day all batches are read, at most so many bytes a second, and their "
        "CRCs compared; 0: only by `headgate log verify --live`.",
    )
    read_threads: int = Field(
        default=4, ge=1, le=64, description="Reads that can wait for the disk at a time."
    )

    settle_after_bytes: int = Field(
        default=256 * _MIB,
        ge=0,
        description="Size of closed segments that starts a settling round: batches are sorted by "
        "partition into settled segments, then the closed segments are removed.",
    )
    settle_after_ms: int = Field(
        default=60_000,
        ge=0,
        description="A round also starts when the oldest closed segment has waited that long; a "
        "log without appends for that long closes its last segment for it.",
    )
    settle_round_bytes: int = Field(
        default=512 * _MIB, ge=_MIB, description="Bound of the closed segments of one round."
    )
    settle_own_bytes: int = Field(
        default=8 * _MIB,
        ge=4_096,
        description="A partition with that many bytes in a round gets a file of its own; the "
        "others share files.",
    )
    settled_bytes_max: int = Field(
        default=1024 * _MIB,
        ge=_MIB,
        le=2048 * _MIB,
        description="Size up to which settled segments are written, and small ones merged.",
    )
    settle_bytes_per_s_max: int = Field(
        default=64 * _MIB,
        ge=64 * 1024,
        description="Bound of what settling, merging and compaction together copy per second; "
        "multiplied when several times `settle_round_bytes` wait.",
    )
    key_index_memory_bytes: int = Field(
        default=32 * _MIB,
        ge=0,
        description="Memory for the keys of batches not settled yet, in topics with "
        "`key.index=true`; 8 bytes a key for each 256 KiB of batches. Beyond it, searches read.",
    )
    read_ahead_bytes: int = Field(
        default=4 * _MIB,
        ge=0,
        description="Read ahead after each read of a settled segment; pages that such a "
        "reader has read are dropped from the page cache. 0 leaves both to the system.",
    )

    @model_validator(mode="after")
    def _check_reserve(self) -> Self:
        if self.reserve_bytes * 2 > self.segment_bytes:
            msg = f"must be at most half of segment_bytes ({self.segment_bytes})"
            raise ValueError(f"reserve_bytes {self.reserve_bytes} {msg}")
        return self
