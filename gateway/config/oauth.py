"""Settings of logins by tokens of an OAuth 2 authority: ``[oauth]``."""

from ipaddress import ip_address
from typing import Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from gateway.config.base import FrozenConfig

_MIB: Final = 1024 * 1024

Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
]


class OauthConfig(FrozenConfig):
    """Logins by signed tokens (JWT): SASL OAUTHBEARER in Kafka, and passwords in MQTT.

    It needs the extra `oauth`. Without `jwks` there are no such logins.
    """

    jwks: str | None = Field(
        default=None,
        min_length=1,
        description="File or https URL with the authority's public keys, as a JSON Web Key Set.",
    )
    issuer: str | None = Field(
        default=None, min_length=1, description="Expected `iss` of tokens; unset: any."
    )
    audience: tuple[str, ...] = Field(
        default=(), description="Expected `aud` of tokens, one of these; empty: any."
    )
    algorithms: tuple[Algorithm, ...] = Field(
        default=("RS256", "ES256"), min_length=1, description="Accepted signatures."
    )
    user_claim: str = Field(
        default="sub", min_length=1, description="Claim with the user's name."
    )
    scope_claim: str = Field(
        default="scope",
        min_length=1,
        description="Claim with the scopes: a list, or a text with spaces between them.",
    )
    scopes: tuple[str, ...] = Field(
        default=(), description="Scopes that a token needs, all of them."
    )
    clock_skew_s: int = Field(
        default=30,
        ge=0,
        le=600,
        description="Seconds by which the clocks of the authority and of this machine may differ.",
    )
    refresh_s: int = Field(
        default=3_600, ge=10, le=86_400, description="Seconds after which keys are read anew."
    )
    refresh_s_min: int = Field(
        default=10,
        ge=1,
        le=3_600,
        description="Shortest time between two reads of the keys, as for tokens with unknown ones.",
    )
    timeout_s: int = Field(
        default=10, ge=1, le=60, description="Seconds for reading the keys from a URL."
    )
    jwks_bytes_max: int = Field(
        default=_MIB, ge=1_024, le=16 * _MIB, description="Bytes of the key set."
    )
    token_bytes_max: int = Field(
        default=16_384, ge=1_024, le=65_536, description="Bytes of a token."
    )

    @property
    def is_url(self) -> bool:
        """Whether the keys come from a URL."""
        return self.jwks is not None and "://" in self.jwks

    @model_validator(mode="after")
    def _check_url(self) -> Self:
        if self.jwks is None or not self.is_url:
            return self
        parts = urlsplit(self.jwks)
        if parts.scheme == "https" and parts.hostname:
            return self
        if parts.scheme == "http" and _is_loopback(parts.hostname or ""):
            return self
        msg = "jwks is a file or an https URL; http is for loopback addresses"
        raise ValueError(msg)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
