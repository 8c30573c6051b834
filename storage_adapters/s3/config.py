"""Settings of the storage in S3, ``[storage]`` with ``adapter = "s3"``."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from gateway.config.base import FrozenConfig
from gateway.config.secrets import SECRET_URL

_KIB = 1024
_MIB = 1024 * _KIB


class S3Config(FrozenConfig):
    """Bucket, sizes of objects and caches, and timeouts."""

    # An acknowledgement takes a flush interval and a PUT: more appends wait than on a disk.
    defaults_elsewhere: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "broker": {"wal_queued_bytes_max": 192 * _MIB, "wal_queued_bytes_low": 128 * _MIB},
        "adapters.kafka": {"unacknowledged_bytes_max": 128 * _MIB},
    }

    bucket: str = Field(min_length=3, max_length=255, description="The bucket; it must exist.")
    prefix: str = Field(
        default="", max_length=512, description="Prefix of every key, such as `headgate/`."
    )
    endpoint_url: str = Field(
        default="",
        description="URL of a server other than Amazon's, such as `http://127.0.0.1:9000`.",
        json_schema_extra=SECRET_URL,
    )
    ca_file: str = Field(
        default="",
        description="Certificates (PEM) of the authorities that vouch for the server of an https "
        "endpoint, in place of the public ones; empty: as for all tools of AWS (`AWS_CA_BUNDLE`).",
    )
    region: str = Field(
        default="", description="The bucket's region; empty: as for all tools of AWS."
    )
    profile: str = Field(
        default="", description="A profile of the AWS configuration; empty: its default chain."
    )
    addressing: Literal["auto", "path", "virtual"] = Field(
        default="auto", description="Place of the bucket's name in URLs."
    )
    flush_interval_ms: int = Field(
        default=250,
        ge=0,
        le=60_000,
        description="Age of an object's first append at which it is closed. Higher values cost "
        "latency, lower ones money.",
    )
    object_bytes: int = Field(
        default=8 * _MIB,
        ge=64 * _KIB,
        le=1024 * _MIB,
        description="An object of this size is closed at once.",
    )
    append_bytes_max: int = Field(
        default=128 * _MIB,
        ge=64 * _KIB,
        le=1024 * _MIB,
        description="Bound of one atomic append.",
    )
    uploads_max: int = Field(
        default=4, ge=1, le=64, description="Objects uploaded at the same time."
    )
    queued_bytes_max: int = Field(
        default=256 * _MIB,
        ge=_MIB,
        description="Bound of appended data that is not in the bucket yet; above it, appends are "
        "refused with a retriable error.",
    )
    reserve_bytes: int = Field(
        default=32 * _MIB,
        ge=0,
        description="Addition to that bound, for acknowledgements and commits only.",
    )
    refuse_after_ms: int = Field(
        default=10_000,
        ge=100,
        description="Duration of an outage of bucket or database after which appends are refused; "
        "accepted ones wait.",
    )
    close_ms_max: int = Field(
        default=30_000,
        ge=0,
        le=600_000,
        description="Longest wait of a stopping node for its uploads.",
    )
    connect_timeout_ms: int = Field(
        default=5_000, ge=100, le=60_000, description="Timeout of a connection to the server."
    )
    request_timeout_ms: int = Field(
        default=20_000,
        ge=100,
        le=600_000,
        description="Silence of the server after which a request is tried again.",
    )
    database_timeout_ms: int = Field(
        default=15_000,
        ge=100,
        le=600_000,
        description="Timeout of a transaction of the index: its connection is cut, and its outcome "
        "looked up or the transaction repeated.",
    )
    retry_ms_max: int = Field(
        default=15_000,
        ge=0,
        le=600_000,
        description="Time for which a read is tried again, with growing pauses.",
    )
    multipart_bytes: int = Field(
        default=32 * _MIB,
        ge=5 * _MIB,
        description="Larger objects are uploaded in parts of this size.",
    )
    checksum: Literal["crc32c", "md5"] = Field(
        default="crc32c",
        description="Checksum of uploads, which the server compares. One without CRC-32C is "
        "given MD5. Set md5 on an untrusted network without TLS: a CRC does not protect "
        "against attackers.",
    )
    tail_cache_bytes: int = Field(
        default=64 * _MIB,
        ge=_MIB,
        description="Memory for the objects written last.",
    )
    memory_cache_bytes: int = Field(
        default=64 * _MIB, ge=_MIB, description="Memory for data read from the bucket."
    )
    disk_cache_bytes: int = Field(
        default=1024 * _MIB,
        ge=0,
        description="Disk cache for such data, in `cache` of data_dir; 0: none.",
    )
    block_bytes: int = Field(
        default=_MIB,
        ge=64 * _KIB,
        le=64 * _MIB,
        description="Unit of reading and caching.",
    )
    read_ahead_bytes: int = Field(
        default=8 * _MIB,
        ge=0,
        le=256 * _MIB,
        description="Read-ahead for sequential readers.",
    )
    rows_cache_bytes: int = Field(
        default=32 * _MIB,
        ge=_MIB,
        description="Memory for the positions of batches in their objects.",
    )
    merge_objects_min: int = Field(
        default=32,
        ge=2,
        le=1_024,
        description="Number of small objects that starts a merge, or `merge_bytes_min`; the result "
        "is sorted by partition.",
    )
    merge_bytes_min: int = Field(
        default=64 * _MIB, ge=64 * _KIB, description="See `merge_objects_min`."
    )
    merge_bytes_max: int = Field(
        default=256 * _MIB, ge=_MIB, description="Bound of one merge; held in memory."
    )
    merge_after_ms: int = Field(
        default=60_000, ge=0, description="Small objects older than this are merged anyway."
    )
    partition_object_bytes_min: int = Field(
        default=8 * _MIB,
        ge=4 * _KIB,
        description="A partition with that much data in a merge gets its own object; others share.",
    )
    sweep_interval_ms: int = Field(
        default=60_000, ge=10, description="Time between two searches for objects to delete."
    )
    delete_after_ms: int = Field(
        default=3_600_000,
        ge=0,
        description="Time for which an unneeded object is kept for reads under way.",
    )

    scrub_gets_per_day: int = Field(
        default=288,
        ge=0,
        le=86_400,
        description="GETs a day, of up to 8 MiB each, that read the objects one after the other "
        "and compare the CRC of every batch. 288 cost less than a cent a month and read 2 GiB a "
        "day at most, which costs more where the way from the bucket is paid by the byte; 0: none.",
    )

    @model_validator(mode="after")
    def _sizes_fit(self) -> "S3Config":
        if self.merge_bytes_max < self.object_bytes:
            raise ValueError("merge_bytes_max: below object_bytes")
        return self
