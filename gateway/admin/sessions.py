"""Sessions of browsers: a cookie in place of the token, with a role and a CSRF token.

A browser sends its cookie with every request that any page makes it send. A change therefore
needs the session's CSRF token in a header, which only the console's own pages know, and an Origin
that is this address, port included: cookies know no ports.
"""

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Final, Literal, NamedTuple

from gateway.admin.roles import PROTOCOL, Caller, Role, needed_role, role_of
from gateway.auth.login_throttle import Peer
from gateway.auth.ports import ANONYMOUS, CLUSTER, Operation, Principal, ResourceType
from gateway.auth.users import StoredUsers
from gateway.config.base import Address
from gateway.errors import Unauthenticated, Unauthorized
from gateway.http_origin import is_known_host
from gateway.kernel import Kernel

SESSIONS_MAX: Final = 1_000  # the least recently used are dropped
IDLE_MS_MAX: Final = 3_600_000
AGE_MS_MAX: Final = 43_200_000
CSRF_HEADER: Final = b"x-csrf-token"
TOKEN_USER: Final = "admin"  # noqa: S105 - a name
"""Name under which the holder of the token, or of this machine, is shown."""
_TOKEN_BYTES: Final = 32
_FORWARDED: Final = frozenset({b"forwarded", b"x-forwarded-for", b"x-real-ip", b"via"})

Headers = dict[bytes, bytes]
Kind = Literal["user", "token", "local"]


@dataclass(slots=True)
class Session:
    """Session of a browser. ``kind``: how it logged in.

    ``local``: without a login, from this machine, while no login is required.
    """

    user: str
    kind: Kind
    created_ms: int
    used_ms: int
    proof: object = None
    """Credentials of the user at the login: others end the session."""
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(_TOKEN_BYTES))


class Sessions:
    """Sessions of a node's console, in memory. Loop only."""

    def __init__(self, token: str, hosts: Collection[str]) -> None:
        self._token = token
        self._hosts = hosts
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def open(self, user: str, kind: Kind, kernel: Kernel) -> tuple[str, Session]:
        """Return a new session and its secret id."""
        now_ms = kernel.clock.monotonic_ms()
        session_id = secrets.token_urlsafe(_TOKEN_BYTES)
        proof = _proof(user, kernel) if kind == "user" else None
        session = self._sessions[session_id] = Session(user, kind, now_ms, now_ms, proof)
        while len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)
        return session_id, session

    def close(self, session_id: str | None) -> None:
        """End a session."""
        self._sessions.pop(session_id or "", None)

    def find(self, session_id: str | None, kernel: Kernel) -> Session | None:
        """Return a session that has not ended, and note that it is used."""
        session = self._sessions.get(session_id or "")
        if session is None:
            return None
        now_ms = kernel.clock.monotonic_ms()
        is_over = (
            now_ms - session.used_ms > IDLE_MS_MAX
            or now_ms - session.created_ms > AGE_MS_MAX
            or not _holds(session, kernel)
        )
        if is_over:
            self.close(session_id)
            return None
        session.used_ms = now_ms
        self._sessions.move_to_end(session_id or "")
        return session

    async def log_in(
        self, user: str, password: str, host: str, kernel: Kernel
    ) -> tuple[str, Session]:
        """Return a new session of a user, or without a name of the token's holder.

        Errors: ``Unauthenticated``, ``Unauthorized`` for a user without a role, ``Overloaded``.
        """
        async with kernel.logins.attempt(Peer(PROTOCOL, host)) as attempt:
            await attempt.turn(user or TOKEN_USER)
            if not user:
                if not hmac.compare_digest(password.strip().encode(), self._token.encode()):
                    raise Unauthenticated("wrong token")
                attempt.passed()
                return self.open(TOKEN_USER, "token", kernel)
            name = await kernel.authenticator.authenticate_plain(user, password)
            attempt.passed()
        if not role_of(name, host, kernel.authenticator, kernel.authorizer):
            raise Unauthorized(
                f"{name} may not use the console; it takes an administrator, or a rule that allows "
                "alter (operator) or describe (viewer) on the cluster"
            )
        return self.open(name, "user", kernel)

    def caller(self, session: Session, host: str, kernel: Kernel) -> Caller:
        """Return the caller of a session, with the role that it has now."""
        if session.kind != "user":
            return Caller(Principal(TOKEN_USER, PROTOCOL, host), Role.ADMIN)
        role = role_of(session.user, host, kernel.authenticator, kernel.authorizer)
        return Caller(Principal(session.user, PROTOCOL, host), role)

    # --- checks of requests

    def check_host(self, headers: Headers) -> None:
        """Check the name that the node is called by (DNS rebinding). Error: ``Unauthorized``."""
        if not is_known_host(_text(headers, b"host"), self._hosts):
            raise Unauthorized("the host name is not in admin.hosts")

    def check_origin(self, headers: Headers, scheme: str) -> None:
        """Check that a request comes from the console's own pages. Error: ``Unauthorized``."""
        origin, host = _text(headers, b"origin"), _text(headers, b"host")
        site = _text(headers, b"sec-fetch-site")
        if origin is not None and origin.lower() != f"{scheme}://{(host or '').lower()}":
            raise Unauthorized("the request comes from another origin")
        if site not in {None, "same-origin", "none"}:
            raise Unauthorized("the request comes from another site")

    def check_csrf(self, session: Session, shown: str | None) -> None:
        """Check a session's CSRF token. Error: ``Unauthorized``."""
        if not hmac.compare_digest((shown or "").encode(), session.csrf.encode()):
            raise Unauthorized(
                "the CSRF token is missing or of another session; reload the page"
            )

    def admit(self, facts: "RequestFacts", path: str, kernel: Kernel) -> Caller:
        """Return the caller of a REST call below ``/v1/`` that shows a cookie and no token.

        Errors: ``Unauthenticated`` without a session, ``Unauthorized``.
        """
        self.check_host(facts.headers)
        session = self.find(facts.session_id, kernel)
        if session is None:
            raise Unauthenticated("log in, or show the token of data_dir/admin.token")
        self.check_origin(facts.headers, facts.scheme)
        caller = self.caller(session, facts.host, kernel)
        needed = needed_role(facts.method, path)
        if needed is None:
            raise Unauthorized("this call needs the token of data_dir/admin.token")
        if caller.role < needed:
            raise Unauthorized(
                f"{caller.principal.name} is {caller.role.title}; this needs "
                f"the role {needed.title}"
            )
        if facts.method not in {"GET", "HEAD"}:
            self.check_csrf(session, _text(facts.headers, CSRF_HEADER))
        return caller


class RequestFacts(NamedTuple):
    """Parts of a request that decide about it."""

    method: str
    scheme: str
    host: str
    port: int
    headers: Headers

    @property
    def cookie_name(self) -> str:
        """Name of the session's cookie: of this port, since cookies are shared between ports."""
        return f"headgate_session_{self.port}"

    @property
    def session_id(self) -> str | None:
        """Value of the session's cookie."""
        try:
            cookies = SimpleCookie(_text(self.headers, b"cookie") or "")
        except CookieError:
            return None
        found = cookies.get(self.cookie_name)
        return None if found is None else found.value

    @property
    def is_local(self) -> bool:
        """Whether a browser of this machine asks, by a name of this machine and no proxy."""
        if not Address(self.host, 0).is_loopback or not _FORWARDED.isdisjoint(self.headers):
            return False
        called = (_text(self.headers, b"host") or "").lower().rpartition(":")[0].strip("[]")
        return Address(called, 0).is_loopback


def _holds(session: Session, kernel: Kernel) -> bool:
    """Say whether the reason for which a session was opened still holds."""
    if session.kind == "local":
        return is_open(kernel)
    return session.kind == "token" or (
        kernel.authenticator.is_known(session.user)
        and _proof(session.user, kernel) is session.proof
    )


def _proof(user: str, kernel: Kernel) -> object:
    """Return a user's credentials, an object that a new password replaces."""
    users = kernel.authenticator
    return users.stored(user) if isinstance(users, StoredUsers) else None


def is_open(kernel: Kernel) -> bool:
    """Say whether a browser of this machine is an administrator without a login.

    It is while nobody must log in, and no rule keeps strangers from changing the cluster.
    """
    anybody = Principal(ANONYMOUS, PROTOCOL, "127.0.0.1")
    return not kernel.authenticator.required and kernel.authorizer.allows(
        anybody, Operation.ALTER, ResourceType.CLUSTER, CLUSTER
    )


def _text(headers: Headers, name: bytes) -> str | None:
    value = headers.get(name)
    return None if value is None else value.decode("latin-1")
