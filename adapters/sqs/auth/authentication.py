"""Authentication of requests by signature, by client certificate, or as anonymous.

A signature by a known access key is always checked. A request without a signature, or with an
unknown key (SDKs send some key in any case), is anonymous where the config allows that and login is
not required; elsewhere it is refused. The account of an anonymous caller is its key, if that is the
12 digits of an account that is served, and the default account otherwise. The user of a client
certificate belongs to the default account, whatever key the request names: that key was not
checked.
"""

from collections.abc import Mapping
from functools import lru_cache
from ipaddress import ip_address
from typing import Final, Protocol
from urllib.parse import urlsplit

from adapters.sqs.auth.signature import Claim, check_signature, check_time, find_claim
from adapters.sqs.call import Identity
from adapters.sqs.errors import (
    ACCESS_DENIED,
    INVALID_CLIENT_TOKEN_ID,
    MISSING_AUTHENTICATION_TOKEN,
    SIGNATURE_DOES_NOT_MATCH,
    SqsError,
)
from adapters.sqs.wire import Request
from gateway.auth.access_keys import AccessKeys
from gateway.auth.ports import ANONYMOUS, Authenticator, Principal
from gateway.clock import Clock
from gateway.http_origin import is_known_host

IDENTITIES_CACHED_MAX: Final = 8_192
HOSTS_CACHED_MAX: Final = 128
PROTOCOL: Final = "sqs"
_BROWSER: Final = b"Mozilla/"  # begins the User-Agent of browsers,
_NO_BROWSER: Final = b"(compatible;"  # and of celery and others, which add this


class AuthenticationSettings(Protocol):
    """The settings of authentication; ``SqsConfig`` implements it."""

    @property
    def account(self) -> str:
        """The default account, 12 digits."""
        ...

    @property
    def accounts(self) -> tuple[str, ...]:
        """More accounts that are served."""
        ...

    @property
    def region(self) -> str:
        """The default region."""
        ...

    @property
    def regions(self) -> tuple[str, ...]:
        """More regions that are served."""
        ...

    @property
    def anonymous(self) -> str:
        """Peers that need no signature: ``loopback``, ``never`` or ``always``."""
        ...

    @property
    def hosts(self) -> tuple[str, ...]:
        """Public DNS names that anonymous clients may call."""
        ...

    @property
    def advertise(self) -> str:
        """The configured beginning of queue URLs, or empty."""
        ...

    @property
    def clock_skew_s_max(self) -> int:
        """Seconds that a signature's time may differ from the clock."""
        ...


class RequestAuthenticator:
    """Authenticates requests from memory. Loop only."""

    def __init__(
        self,
        config: AuthenticationSettings,
        access_keys: AccessKeys,
        authenticator: Authenticator,
        clock: Clock,
    ) -> None:
        self._config = config
        self._authenticator = authenticator
        self._keys = access_keys
        self._clock = clock
        self._regions = frozenset({config.region, *config.regions})
        self._accounts = frozenset({config.account, *config.accounts})
        hosts = frozenset({*config.hosts, urlsplit(config.advertise).hostname or ""})
        self._is_known_host = lru_cache(HOSTS_CACHED_MAX)(
            lambda host: is_known_host(None if host is None else host.decode("latin-1"), hosts)
        )

    def authenticate(
        self, request: Request, peer_host: str, certificate_user: str | None = None
    ) -> Identity:
        """Return the identity of a request's sender. Errors: ``SqsError``.

        A signature by a known key comes first, then the user of the connection's certificate.
        """
        claim = find_claim(request)
        if claim is None:
            return self._unsigned(request, peer_host, None, certificate_user)
        scope = claim.scope
        key = self._keys.find(scope.key_id)
        if key is None:
            return self._unsigned(request, peer_host, claim, certificate_user)
        if claim.session_token:  # the gateway issues no temporary keys
            raise _invalid_token()
        check_time(claim, self._clock.wall_unix_ms(), skew_s_max=self._config.clock_skew_s_max)
        check_signature(request, claim, key.secret)
        if scope.region not in self._regions:
            raise SqsError(
                SIGNATURE_DOES_NOT_MATCH,
                f"Credential should be scoped to a valid region, not '{scope.region[:100]}'.",
            )
        account = key.account or self._config.account
        return _identity(
            key.user, peer_host, account, scope.region, scope.key_id, scope.service
        )

    def claimed_user(self, request: Request) -> str:
        """Return the user of the key that a request names, or the key's id, for a log line.

        Empty when the request names no key.
        """
        try:
            claim = find_claim(request)
        except SqsError:
            return ""
        if claim is None:
            return ""
        key = self._keys.find(claim.scope.key_id)
        return claim.scope.key_id if key is None else key.user

    def _unsigned(
        self, request: Request, peer_host: str, claim: Claim | None, user: str | None
    ) -> Identity:
        if user is None and not self._may_be_anonymous(peer_host):
            if claim is not None:
                raise _invalid_token()
            raise SqsError(
                MISSING_AUTHENTICATION_TOKEN, "Request is missing Authentication Token"
            )
        if _is_from_web_page(request.headers):
            # A web page in a browser on this machine must not act as a local client.
            raise SqsError(ACCESS_DENIED, "Requests of web pages need a signature.")
        if not self._is_known_host(request.headers.get(b"host")):
            raise SqsError(
                ACCESS_DENIED,
                "Requests to this host name need a signature, or the name in adapters.sqs.hosts.",
            )
        config = self._config
        if claim is None:
            return _identity(
                user or ANONYMOUS, peer_host, config.account, config.region, "", ""
            )
        key_id, region = claim.scope.key_id, claim.scope.region
        return _identity(
            user or ANONYMOUS,
            peer_host,
            key_id if user is None and key_id in self._accounts else config.account,
            region if region in self._regions else config.region,
            "",
            claim.scope.service,
        )

    def _may_be_anonymous(self, peer_host: str) -> bool:
        if self._authenticator.required:
            return False
        allowed = self._config.anonymous
        return allowed == "always" or (allowed == "loopback" and is_loopback(peer_host))


def _is_from_web_page(headers: Mapping[bytes, bytes]) -> bool:
    """Return whether a browser sent a request on behalf of a web page.

    A request whose address the user has typed is not one. https://www.w3.org/TR/fetch-metadata/:
    browsers leave ``Sec-Fetch-Site`` away for hosts that are not potentially trustworthy, as any
    name that leads to 127.0.0.1; requests for images have no Origin either.
    """
    if b"origin" in headers:
        return True
    site = headers.get(b"sec-fetch-site")
    if site is None:
        agent = headers.get(b"user-agent", b"")
        return agent.startswith(_BROWSER) and _NO_BROWSER not in agent
    return site != b"none"


@lru_cache(maxsize=IDENTITIES_CACHED_MAX)
def _identity(  # noqa: PLR0917 - the cache's key
    user: str, host: str, account: str, region: str, key_id: str, service: str
) -> Identity:
    return Identity(Principal(user, PROTOCOL, host), account, region, key_id, service)


@lru_cache(maxsize=IDENTITIES_CACHED_MAX)
def is_loopback(host: str) -> bool:
    """Return whether an address is a loopback address."""
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _invalid_token() -> SqsError:
    return SqsError(
        INVALID_CLIENT_TOKEN_ID, "The security token included in the request is invalid."
    )
