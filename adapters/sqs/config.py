"""Settings of the SQS endpoint: ``[adapters.sqs]``."""

import json
import re
from typing import Any, ClassVar, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from adapters.sqs.errors import SqsError
from adapters.sqs.http.body_limits import ELEMENTS_MAX
from adapters.sqs.queues.attribute_specs import NUMBERS
from adapters.sqs.queues.attributes import check_throughput, parse_change
from adapters.sqs.queues.names import check_queue_name, is_fifo_name
from adapters.sqs.queues.redrive_policies import RedriveTarget, parse_redrive_policy
from adapters.sqs.queues.tags import merge_tags
from adapters.sqs.queues.urls import is_region
from adapters.sqs.text import is_account
from gateway.config.base import BindAddress, FrozenConfig, ListenerConfig, parse_address
from gateway.config.request_budget import RequestBytesBudget, RequestStallSeconds
from gateway.config.settings import Settings

_MIB: Final = 1024 * 1024
_ADVERTISE: Final = re.compile(r"https?://[A-Za-z0-9.:\[\]_-]+/?")


def _number(name: str, description: str) -> Any:  # noqa: ANN401 - a field, as pydantic's own
    number = NUMBERS[name]
    return Field(default=None, ge=number.low, le=number.high, description=description)


def _as_text(value: object) -> str:
    """Return a value as text, as requests have all attributes."""
    if isinstance(value, dict):
        return json.dumps(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parsed_target(text: str) -> RedriveTarget | None:
    """Return the target of a RedrivePolicy; the start checks that the queue exists."""
    policy = parse_redrive_policy(text)
    return RedriveTarget(policy.target_arn, policy.attempts_max)


class DeclaredSqsQueue(FrozenConfig):
    """A queue that is created at the start, as by CreateQueue, unless it exists.

    It belongs to the default account and region, and is FIFO if its name ends in `.fifo`. Beside
    name and tags it takes the attributes of SQS by their names, with the same defaults and limits.
    """

    name: str = Field(description="The queue's name.")
    tags: dict[str, str] = Field(default_factory=dict, description="The queue's tags.")
    ContentBasedDeduplication: bool | None = Field(
        default=None,
        description="FIFO: a message without a deduplication id gets the SHA-256 of its body.",
    )
    DeduplicationScope: Literal["queue", "messageGroup"] | None = Field(
        default=None, description="FIFO: scope of deduplication ids."
    )
    DelaySeconds: int | None = _number(
        "DelaySeconds", "Seconds until a new message can be received."
    )
    FifoThroughputLimit: Literal["perQueue", "perMessageGroupId"] | None = Field(
        default=None, description="FIFO: stored and returned; without effect."
    )
    KmsDataKeyReusePeriodSeconds: int | None = _number(
        "KmsDataKeyReusePeriodSeconds", "Stored and returned; without effect."
    )
    KmsMasterKeyId: str | None = Field(
        default=None, description="Stored and returned; without effect."
    )
    MaximumMessageSize: int | None = _number("MaximumMessageSize", "Largest message in bytes.")
    MessageRetentionPeriod: int | None = _number(
        "MessageRetentionPeriod", "Seconds after which a message is deleted."
    )
    Policy: dict[str, Any] | str | None = Field(
        default=None, description="Permissions of the queue: a table, or JSON."
    )
    ReceiveMessageWaitTimeSeconds: int | None = _number(
        "ReceiveMessageWaitTimeSeconds", "Seconds for which receives wait by default."
    )
    RedriveAllowPolicy: dict[str, Any] | str | None = Field(
        default=None,
        description="Queues that may use it as dead-letter queue: a table, or JSON.",
    )
    RedrivePolicy: dict[str, Any] | str | None = Field(
        default=None,
        description='`{ deadLetterTargetArn = "arn:aws:sqs:us-east-1:000000000000:dead", '
        "maxReceiveCount = 3 }`; that queue has to exist or be declared as well.",
    )
    SqsManagedSseEnabled: bool | None = Field(
        default=None, description="Stored and returned; without effect."
    )
    VisibilityTimeout: int | None = _number(
        "VisibilityTimeout", "Seconds in which a receiver has to delete a message."
    )

    def given(self) -> dict[str, str]:
        """Return the attributes as a request would have them."""
        values = self.model_dump(exclude={"name", "tags"}, exclude_none=True)
        return {name: _as_text(value) for name, value in values.items()}

    def target_name(self) -> str:
        """Return the name of its dead-letter queue, or an empty text."""
        text = self.given().get("RedrivePolicy")
        return parse_redrive_policy(text).target_arn.rpartition(":")[2] if text else ""

    @model_validator(mode="after")
    def _check(self) -> Self:
        fifo = is_fifo_name(self.name)
        try:
            check_queue_name(self.name, fifo=fifo)
            change = parse_change(self.given(), fifo=fifo, find_target=_parsed_target)
            check_throughput(change.attributes)
            merge_tags(self.name, {}, self.tags)
        except SqsError as error:
            raise ValueError(error.message) from None
        return self


class SqsConfig(ListenerConfig):
    """Settings of the SQS endpoint. Every limit has a number; none is infinite."""

    bind: BindAddress = Field(default="127.0.0.1:9324", description="Address to listen on.")
    connections_max: int = Field(
        default=100_000,
        ge=1,
        le=1_000_000,
        description="Open connections; further ones are closed at once.",
    )
    connections_per_ip_max: int = Field(
        default=100_000, ge=1, le=1_000_000, description="Open connections of one IP address."
    )
    advertise: str = Field(
        default="",
        description="Beginning of queue URLs, as `http://queues.example:9324`; by default the host "
        "and port of the client's request.",
    )
    region: str = Field(default="us-east-1", description="The default region.")
    regions: tuple[str, ...] = Field(default=(), description="Further regions that are served.")
    account: str = Field(default="000000000000", description="The default account, 12 digits.")
    accounts: tuple[str, ...] = Field(
        default=(),
        description="Further accounts that are served; anonymous clients name one as access key.",
    )
    anonymous: Literal["loopback", "never", "always"] = Field(
        default="loopback",
        description="Clients that need no signature by a known key: those on this machine, none, "
        "or all.",
    )
    hosts: tuple[str, ...] = Field(
        default=(),
        description="Public DNS names that anonymous clients may use in requests, beside the name "
        "in `advertise`. IP addresses and names that are not public are always allowed.",
    )
    clock_skew_s_max: int = Field(
        default=900,
        ge=1,
        le=86_400,
        description="Seconds by which a signature's time may differ from the gateway's clock.",
    )
    header_bytes_max: int = Field(
        default=64 * 1024,
        ge=4 * 1024,
        le=_MIB,
        description="Largest request line and headers in bytes.",
    )
    request_bytes_max: int = Field(
        default=8 * _MIB,
        ge=64 * 1024,
        le=64 * _MIB,
        description="Largest body of a request in bytes. 1 MiB of messages may come as 6 MiB: "
        "boto3 and other SDKs write some characters of one byte as six, `\\u007f`. Forms triple "
        "bytes, and base64 is longer by a third (four times as long in a form). The rest is room "
        "for names, ids, and messages that are too large and get the error of SQS.",
    )
    request_elements_max: int = Field(
        default=ELEMENTS_MAX,
        ge=2_000,
        le=1_000_000,
        description="Most names and values in a JSON body above 64 KiB; a body with more is "
        "refused before it is decoded.",
    )
    request_bytes_budget: RequestBytesBudget = Field(default=256 * _MIB, ge=4 * _MIB)
    request_stall_s_max: RequestStallSeconds = 2
    requests_pipelined_max: int = Field(
        default=64,
        ge=1,
        le=10_000,
        description="Unanswered requests of one connection; further ones are not read.",
    )
    queue_partitions: int = Field(
        default=1, ge=1, le=1_000, description="Partitions of the topic of a new queue."
    )
    deleted_name_s: int = Field(
        default=60,
        ge=0,
        le=86_400,
        description="Seconds for which the name of a deleted queue cannot be used again.",
    )
    purge_s: int = Field(
        default=60, ge=0, le=86_400, description="Seconds between two purges of a queue."
    )
    dedup_s: int = Field(
        default=300,
        ge=1,
        le=300,  # the log keeps deleted messages no longer: ``queue.keep.ms`` in CreateQueue
        description="Seconds for which a FIFO queue remembers a deduplication id.",
    )
    dedup_ids_max: int = Field(
        default=1_000_000,
        ge=1,
        description="Deduplication ids remembered for all queues; further sends are refused.",
    )
    receive_attempts_max: int = Field(
        default=10_000,
        ge=1,
        description="Receive attempts with an id that are remembered for repetition.",
    )

    queues: tuple[DeclaredSqsQueue, ...] = ()

    @field_validator("region", "regions")
    @classmethod
    def _check_regions(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        for region in (value,) if isinstance(value, str) else value:
            if not is_region(region):
                raise ValueError(f"{region!r} is not a region such as eu-central-1")
        return value

    @field_validator("account", "accounts")
    @classmethod
    def _check_accounts(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        for account in (value,) if isinstance(value, str) else value:
            if not is_account(account):
                raise ValueError(f"{account!r} is not 12 digits")
        return value

    @field_validator("advertise")
    @classmethod
    def _check_advertise(cls, value: str) -> str:
        if value and not _ADVERTISE.fullmatch(value):
            raise ValueError("not http://host:port or https://host:port")
        return value.rstrip("/")

    @model_validator(mode="after")
    def _check_budget(self) -> Self:
        if self.request_bytes_budget < self.request_bytes_max:
            raise ValueError("request_bytes_budget is below request_bytes_max")
        return self

    authenticates_users: ClassVar[bool] = True  # where login is required, by signatures

    # The base class has a constant; here it depends on a key.
    @property
    def refuses_strangers(self) -> bool:  # type: ignore[override]
        """Whether clients from elsewhere need a signature by a known key."""
        return self.anonymous != "always"

    def warnings(self, settings: Settings) -> list[str]:
        """Return warnings about legal settings: queues open to anonymous remote clients."""
        if settings.auth.required:
            return []
        if self.anonymous == "always" and not parse_address(self.bind).is_loopback:
            return [
                'anonymous: with "always", any client that reaches the listener may use all queues'
            ]
        return []
