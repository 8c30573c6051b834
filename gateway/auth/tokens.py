"""Validation of tokens: JWT (RFC 7519) signed by a key of the authority."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import jwt
from jwt.exceptions import PyJWTError

from gateway.auth.jwks import KeySet
from gateway.auth.ports import NAME_CHARS_MAX
from gateway.auth.users import check_name
from gateway.clock import Clock
from gateway.config.oauth import OauthConfig
from gateway.errors import InvalidRequest, Unauthenticated

_MS_PER_S: Final = 1_000


class TokenUser(NamedTuple):
    """User of a valid token, and when the token ends."""

    name: str
    expires_unix_ms: int


class TokenValidator:
    """Checks tokens by the settings and the authority's keys. Loop only."""

    def __init__(self, config: OauthConfig, keys: KeySet, clock: Clock) -> None:
        self.config = config
        self._keys = keys
        self._clock = clock

    def claimed_user(self, token: str) -> str:
        """Return the name that a token claims, unchecked; empty for none.

        Failed logins count by it, so that those of one user hold up no other.
        """
        if len(token) > self.config.token_bytes_max:
            return ""
        try:
            claims = jwt.decode(token, options={"verify_signature": False})
        except (PyJWTError, ValueError, TypeError):
            return ""
        name = claims.get(self.config.user_claim)
        return name[:NAME_CHARS_MAX] if isinstance(name, str) else ""

    async def validate(self, token: str) -> TokenUser:
        """Return the user of a token. Error: ``Unauthenticated``, with the reason for the log."""
        if len(token) > self.config.token_bytes_max:
            msg = f"a token of more than {self.config.token_bytes_max} bytes"
            raise Unauthenticated(msg)
        try:
            header = jwt.get_unverified_header(token)
            algorithm = header.get("alg")
            if algorithm not in self.config.algorithms:
                msg = f"a token signed by {str(algorithm)[:20]!r}"
                raise Unauthenticated(msg)
            key = await self._keys.find(str(header.get("kid", "")))
            if key is None:
                msg = "a token signed by an unknown key"
                raise Unauthenticated(msg)
            claims = jwt.decode(
                token,
                key.key,
                algorithms=[algorithm],
                audience=self.config.audience or None,
                issuer=self.config.issuer,
                options={
                    "require": ["exp", self.config.user_claim],
                    # By the clock of the node, below; PyJWT has a clock of its own.
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                    "verify_aud": bool(self.config.audience),
                    "verify_sub": False,
                },
            )
        except (PyJWTError, ValueError, TypeError) as error:
            raise Unauthenticated(f"a token is refused: {error}") from error
        return self._user_of(claims)

    def _user_of(self, claims: Mapping[str, Any]) -> TokenUser:
        config, now_s = self.config, self._clock.wall_unix_ms() / _MS_PER_S
        expires_s = _seconds(claims, "exp")
        if now_s >= expires_s + config.clock_skew_s:
            msg = "a token has expired"
            raise Unauthenticated(msg)
        for name in ("nbf", "iat"):
            if name in claims and now_s < _seconds(claims, name) - config.clock_skew_s:
                msg = f"a token is from the future: {name}"
                raise Unauthenticated(msg)
        scopes = claims.get(config.scope_claim, ())
        present = set(scopes.split() if isinstance(scopes, str) else map(str, scopes or ()))
        if missing := set(config.scopes) - present:
            msg = f"a token lacks the scopes {', '.join(sorted(missing))}"
            raise Unauthenticated(msg)
        return TokenUser(_name_of(claims[config.user_claim]), int(expires_s * _MS_PER_S))


def _seconds(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e12:  # noqa: PLR2004 - the year 33,000
        msg = f"a token whose {name} is no time"
        raise Unauthenticated(msg)
    return float(value)


def _name_of(value: object) -> str:
    try:
        # The authority vouches for a name as it is written, and not for what looks like it.
        if isinstance(value, str) and check_name(value) == value:
            return value
    except InvalidRequest:
        pass
    msg = f"a token for {str(value)[:80]!r}, which cannot be a user's name"
    raise Unauthenticated(msg)
