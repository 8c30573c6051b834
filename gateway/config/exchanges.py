"""Config sections of exchanges and bindings."""

from typing import Self

from pydantic import Field, field_validator, model_validator

from gateway.config.base import FrozenConfig
from gateway.config.names import DeclaredMode, TopicNameOrNone

_NAME_BYTES_MAX = 255
_RESERVED = "amq."

Argument = bool | int | float | str


class ExchangeConfig(FrozenConfig):
    """Bounds of exchanges and bindings."""

    exchanges_max: int = Field(
        default=10_000, ge=1, le=1_000_000, description="Exchanges on this node."
    )
    bindings_max: int = Field(
        default=100_000, ge=1, le=10_000_000, description="Bindings on this node."
    )
    arguments_bytes_max: int = Field(
        default=16_384,
        ge=64,
        le=1_048_576,
        description="Bytes of the arguments of an exchange or a binding, as JSON.",
    )
    targets_max: int = Field(
        default=1_000, ge=1, le=100_000, description="Topics that one message goes to."
    )
    history_bytes_max: int = Field(
        default=16_777_216,
        ge=0,
        description="Bytes of the messages that exchanges of type `x-recent-history` remember; "
        "beyond them the exchange that was idle longest forgets its own.",
    )
    routes_bytes_max: int = Field(
        default=16_777_216,
        ge=0,
        description="Bytes of the routes by routing key that all namespaces remember; beyond them "
        "the idle ones are forgotten.",
    )


class DeclaredExchange(FrozenConfig):
    """One exchange of `[[exchanges]]`; it is made at the start when it is not there."""

    name: str = Field(description="Its name; names that begin with `amq.` are reserved.")
    type: str = Field(
        default="direct",
        description="`direct`, `fanout`, `topic`, `headers`, `x-consistent-hash`, "
        "`x-modulus-hash`, `x-random`, `x-local-random`, `x-recent-history` or "
        "`x-delayed-message`.",
    )
    declared: DeclaredMode | None = Field(
        default=None,
        description="`create` or `enforce` for this one; `node.declared` if unset. `enforce` "
        "changes the alternate exchange; another type has to be deleted first.",
    )
    alternate: str = Field(
        default="",
        description="Exchange for messages that no binding matches; it need not exist.",
    )
    arguments: dict[str, Argument] = Field(
        default_factory=dict, description="Arguments of its type, by their names in AMQP."
    )

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if not 1 <= len(name.encode()) <= _NAME_BYTES_MAX or name.startswith(_RESERVED):
            msg = (
                f"an exchange's name has 1 to {_NAME_BYTES_MAX} bytes and does not begin with "
                f"{_RESERVED!r}"
            )
            raise ValueError(msg)
        return name


class DeclaredBinding(FrozenConfig):
    """One binding of `[[bindings]]`; it is made at the start when it is not there.

    It leads from an exchange to a topic or to another exchange; both ends must be there, or be
    declared in the same file.
    """

    source: str = Field(description="Exchange that the messages are published to.")
    topic: TopicNameOrNone = Field(
        default="", description="Topic that gets them; a queue may be on it."
    )
    exchange: str = Field(
        default="", description="Exchange that gets them, instead of a topic."
    )
    routing_key: str = Field(
        default="",
        max_length=_NAME_BYTES_MAX,
        description="Key or pattern; the weight for `x-consistent-hash`.",
    )
    arguments: dict[str, Argument] = Field(
        default_factory=dict, description="Conditions of a `headers` exchange, and `x-match`."
    )

    @model_validator(mode="after")
    def _check_ends(self) -> Self:
        if bool(self.topic) is bool(self.exchange):
            msg = "a binding has either a topic or an exchange as its destination"
            raise ValueError(msg)
        if not self.source:
            msg = "source: the default exchange cannot be bound"
            raise ValueError(msg)
        return self
