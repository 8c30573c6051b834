"""Client quotas of the config file: ``[[quotas]]``."""

from ipaddress import ip_address
from typing import Final, Self

from pydantic import Field, model_validator

from gateway.config.base import FrozenConfig

_RATE_MAX: Final = 2**63 - 1
_WHO: Final = ("user", "client_id", "ip")


class DeclaredQuota(FrozenConfig):
    """Quotas of a user, a client id, both, or an IP address; the most specific one counts.

    `<default>` stands for every name without a quota of its own.
    """

    user: str | None = Field(
        default=None, min_length=1, max_length=255, description="User name, or `<default>`."
    )
    client_id: str | None = Field(
        default=None,
        min_length=1,
        max_length=255,
        description="Client id of Kafka, client identifier of MQTT, access key id of SQS, or "
        "`<default>`.",
    )
    ip: str | None = Field(default=None, description="IP address, or `<default>`.")
    producer_byte_rate: int | None = Field(
        default=None, ge=1, le=_RATE_MAX, description="Bytes a second that it may send."
    )
    consumer_byte_rate: int | None = Field(
        default=None, ge=1, le=_RATE_MAX, description="Bytes a second that it may receive."
    )
    request_percentage: float | None = Field(
        default=None,
        gt=0,
        description="Time of one core that its requests may take, in percent.",
    )
    controller_mutation_rate: float | None = Field(
        default=None,
        gt=0,
        description="Partitions a second that it may create or delete.",
    )
    connection_creation_rate: int | None = Field(
        default=None,
        ge=1,
        le=2**31 - 1,
        description="Connections a second; for `ip` alone.",
    )

    @property
    def limits(self) -> dict[str, float]:
        """The limits that are set, by their names."""
        return self.model_dump(exclude_none=True, exclude=set(_WHO))

    @model_validator(mode="after")
    def _check(self) -> Self:
        is_ip = self.ip is not None
        if is_ip == (self.user is not None or self.client_id is not None):
            msg = "needs user, client_id or both; or ip alone"
            raise ValueError(msg)
        if not self.limits:
            msg = "has no limit"
            raise ValueError(msg)
        if (
            self.limits.keys() - {"connection_creation_rate"}
            if is_ip
            else (self.connection_creation_rate is not None)
        ):
            msg = "connection_creation_rate goes with ip, the other limits go without it"
            raise ValueError(msg)
        if is_ip and self.ip != "<default>":
            ip_address(str(self.ip))  # raises ValueError
        return self
