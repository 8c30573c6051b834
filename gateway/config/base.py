"""Base classes of config sections: strict, frozen tables, and those of listeners."""

import re
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from gateway.errors import InvalidSettings as InvalidSettings  # noqa: PLC0414 - for plug-ins


class FrozenConfig(BaseModel):
    """A section of the config: cannot be changed once made, refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    defaults_elsewhere: ClassVar[Mapping[str, Mapping[str, int]]] = {}
    """Defaults of other tables that suit a storage better than the tables' own.

    By a table's path, ``broker`` or ``adapters.kafka``. If the user sets one of a table's keys,
    none of them is taken from here: they go together.
    """
    when_unconfigured: ClassVar[Mapping[str, Any]] = {}
    """Keys of a built-in adapter that are set where the config has no table of it."""


class Address(NamedTuple):
    """A host and a TCP port; port 0 lets the system choose when listening."""

    host: str
    port: int

    def __str__(self) -> str:
        """Return ``host:port``, an IPv6 address in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it; of names, only localhost counts."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_address(text: str) -> Address:
    """Return the host and port of ``host:port`` or ``[ipv6]:port``. Errors: ``ValueError``.

    >>> parse_address("[::1]:9092")
    Address(host='::1', port=9092)
    """
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    bare = host[1:-1] if bracketed else host
    if not colon or not bare or (":" in bare) != bracketed or not port.isascii():
        msg = "not host:port (an IPv6 address needs brackets, [::1]:9092)"
        raise ValueError(msg)
    if not port.isdigit() or int(port) > 65_535:  # noqa: PLR2004 - the largest TCP port
        msg = f"port {port!r} is not 0 to 65535"
        raise ValueError(msg)
    return Address(bare, int(port))


def _check_address(text: str) -> str:
    parse_address(text)
    return text


BindAddress = Annotated[str, AfterValidator(_check_address)]


class ListenerConfig(FrozenConfig):
    """Config of an adapter that listens on TCP; its ``Config`` gives ``bind`` a default."""

    authenticates_users: ClassVar[bool] = False
    """Whether this adapter lets nobody in without a password once users are configured."""
    refuses_strangers: ClassVar[bool] = False
    """Whether it serves nobody of another machine who does not show who he is, users or not."""

    bind: BindAddress = Field(
        default="127.0.0.1:0",
        description="Address to listen on; port 0 lets the system choose.",
    )
    connections_max: int = Field(
        default=10_000,
        ge=1,
        le=1_000_000,
        description="Open connections; more are closed at once.",
    )
    connections_per_ip_max: int = Field(
        default=10_000, ge=1, le=1_000_000, description="Open connections of one IP address."
    )
    tls_cert: Path | None = Field(
        default=None, description="PEM file with the certificate chain; enables TLS."
    )
    tls_key: Path | None = Field(
        default=None, description="PEM file with the certificate's private key."
    )
    tls_client_ca: Path | None = Field(
        default=None,
        description="PEM file with authorities; clients must present a certificate signed by one.",
    )
    tls_client_user: Literal["cn", "dns", "email", "uri", "none"] = Field(
        default="cn",
        description="Part of a client's certificate that names its user: the common name, an "
        "alternative name of that kind, or none. Several different names map to no user.",
    )
    tls_client_pattern: str = Field(
        default="",
        max_length=1_000,
        description="Regular expression for the whole name; its group, if any, is the user's name: "
        "`(.+)[.]clients[.]example`. Empty: any name.",
    )
    proxy_protocol: bool = Field(
        default=False,
        description="Expect a PROXY protocol header (v1 or v2) first, and trust its address.",
    )
    handshake_s_max: int = Field(
        default=10,
        ge=1,
        le=3_600,
        description="Seconds for TLS, the PROXY header and the first request.",
    )
    idle_s_max: int = Field(
        default=600,
        ge=1,
        le=86_400,
        description="Seconds without data before a connection is closed.",
    )
    frame_s_max: int = Field(
        default=30,
        ge=1,
        le=3_600,
        description="Seconds in which a started frame must complete.",
    )

    @field_validator("bind")
    @classmethod
    def _check_bind(cls, text: str) -> str:
        """Check ``bind``, also of subclasses with another default and type."""
        return _check_address(text)

    @field_validator("tls_client_pattern")
    @classmethod
    def _check_pattern(cls, pattern: str) -> str:
        try:
            groups = re.compile(pattern).groups
        except re.error as error:
            msg = f"is no regular expression: {error}"
            raise ValueError(msg) from None
        if groups > 1:
            msg = "has more than one group"
            raise ValueError(msg)
        return pattern

    @model_validator(mode="after")
    def _check_tls(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            msg = "tls_cert and tls_key need each other"
            raise ValueError(msg)
        if self.tls_client_ca is not None and self.tls_cert is None:
            msg = "tls_client_ca needs tls_cert and tls_key"
            raise ValueError(msg)
        return self
