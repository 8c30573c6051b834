"""Settings of the storage in S3, ``[storage]`` with ``adapter = "s3"``."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from gateway.config.base import FrozenConfig
from gateway.config.secrets import SECRET_URL

_KIB = 1024
_MIB = 1024 * _KIB


class S3Config(FrozenConfig):
    """Where the bucket is, when an object is closed, what is cached, how long is waited."""

    # An acknowledgement takes a flush interval and a PUT: more is on its way than on a disk.
    defaults_elsewhere: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "broker": {"wal_queued_bytes_max": 192 * _MIB, "wal_queued_bytes_low": 128 * _MIB},
        "adapters.kafka": {"unacknowledged_bytes_max": 128 * _MIB},
    }

    bucket: str = Field(
        min_length=3, max_length=255, description="The bucket; it must be there."
    )
    prefix: str = Field(
        default="", max_length=512, description="Put before every key, as in `headgate/`."
    )
    endpoint_url: str = Field(
        default="",
        description="Of another server than Amazon's, `http://127.0.0.1:9000`.",
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
        default="auto", description="Where a URL says the bucket's name."
    )
    flush_interval_ms: int = Field(
        default=250,
        ge=0,
        le=60_000,
        description="An object is closed so long after its first append. A latency and a price.",
    )
    object_bytes: int = Field(
        default=8 * _MIB,
        ge=64 * _KIB,
        le=1024 * _MIB,
        description="An object of this size is closed at once.",
    )
    append_bytes_max: int = Field(
        default=128 * _MIB, ge=64 * _KIB, le=1024 * _MIB, description="One atomic append."
    )
    uploads_max: int = Field(
        default=4, ge=1, le=64, description="Objects on their way to the bucket at once."
    )
    queued_bytes_max: int = Field(
        default=256 * _MIB,
        ge=_MIB,
        description="Appended bytes that the bucket does not have; above it, appends are "
        "refused, and told to come again.",
    )
    reserve_bytes: int = Field(
        default=32 * _MIB,
        ge=0,
        description="More of them, for acknowledgements and commits only.",
    )
    refuse_after_ms: int = Field(
        default=10_000,
        ge=100,
        description="Bucket or database away for so long: appends are refused from then on; "
        "what was taken before waits.",
    )
    close_ms_max: int = Field(
        default=30_000,
        ge=0,
        le=600_000,
        description="So long a stopping node waits for what is on its way to the bucket.",
    )
    connect_timeout_ms: int = Field(
        default=5_000, ge=100, le=60_000, description="For a connection to the bucket's server."
    )
    request_timeout_ms: int = Field(
        default=20_000,
        ge=100,
        le=600_000,
        description="Silence of the server within a request; then it is made again.",
    )
    database_timeout_ms: int = Field(
        default=15_000,
        ge=100,
        le=600_000,
        description="A transaction of the index that takes longer is given up, and its connection "
        "cut: the database hangs. It is looked up, or made again.",
    )
    retry_ms_max: int = Field(
        default=15_000,
        ge=0,
        le=600_000,
        description="So long a read is tried again, with growing pauses.",
    )
    multipart_bytes: int = Field(
        default=32 * _MIB,
        ge=5 * _MIB,
        description="Larger objects are put in parts of this size.",
    )
    checksum: Literal["crc32c", "md5"] = Field(
        default="crc32c",
        description="What the server compares of what is put. One that does not know CRC-32C is "
        "given MD5. Set md5 where the way there is not trusted and has no TLS: a CRC is no proof "
        "against intent.",
    )
    tail_cache_bytes: int = Field(
        default=64 * _MIB,
        ge=_MIB,
        description="Memory for the objects written last, whole.",
    )
    memory_cache_bytes: int = Field(
        default=64 * _MIB, ge=_MIB, description="Memory for what was read from the bucket."
    )
    disk_cache_bytes: int = Field(
        default=1024 * _MIB,
        ge=0,
        description="The same on the disk, in `cache` of data_dir; 0: none.",
    )
    block_bytes: int = Field(
        default=_MIB,
        ge=64 * _KIB,
        le=64 * _MIB,
        description="What is read and cached at a time, at least.",
    )
    read_ahead_bytes: int = Field(
        default=8 * _MIB,
        ge=0,
        le=256 * _MIB,
        description="Read in advance for who reads on and on.",
    )
    rows_cache_bytes: int = Field(
        default=32 * _MIB,
        ge=_MIB,
        description="Memory for where batches lie in their objects.",
    )
    merge_objects_min: int = Field(
        default=32,
        ge=2,
        le=1_024,
        description="So many small objects, or `merge_bytes_min`, are made into one for each "
        "partition.",
    )
    merge_bytes_min: int = Field(
        default=64 * _MIB, ge=64 * _KIB, description="See `merge_objects_min`."
    )
    merge_bytes_max: int = Field(
        default=256 * _MIB, ge=_MIB, description="Merged at a time; held in memory."
    )
    merge_after_ms: int = Field(
        default=60_000, ge=0, description="Small objects older than this are merged anyway."
    )
    partition_object_bytes_min: int = Field(
        default=8 * _MIB,
        ge=4 * _KIB,
        description="A partition with so much of a merge has an object of its own; others share.",
    )
    sweep_interval_ms: int = Field(
        default=60_000, ge=10, description="Between two looks for objects to delete."
    )
    delete_after_ms: int = Field(
        default=3_600_000,
        ge=0,
        description="An object that nothing needs any more stays so long, for those who read it.",
    )

    @model_validator(mode="after")
    def _sizes_fit(self) -> "S3Config":
        if self.merge_bytes_max < self.object_bytes:
            raise ValueError("merge_bytes_max: below object_bytes")
        return self
