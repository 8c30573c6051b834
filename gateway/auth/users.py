"""Users and their passwords: stored in the metadata store, read from memory.

Only what SCRAM needs of a password is kept (see ``gateway.auth.scram``). Deriving that takes
milliseconds of CPU, on purpose, so it is done in threads, and a bounded number at once.
"""

import asyncio
import hmac
import secrets
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, TypeVar

from gateway.auth.login_policy import LoginPolicy
from gateway.auth.password_hashes import Credential, PasswordHash
from gateway.auth.ports import ANONYMOUS, EVERYBODY, NAME_CHARS_MAX
from gateway.auth.scram import (
    SALT_BYTES,
    ScramCredential,
    ScramMechanism,
    fits,
    make_credential,
    make_decoy,
    saslprep,
)
from gateway.config.auth import AuthConfig
from gateway.errors import InvalidRequest, Overloaded, PolicyViolation, Unauthenticated
from gateway.metadata.change_model import ChangeKind, parts_of
from gateway.metadata.changes import Changes
from gateway.metadata.store import MetadataStore

PASSWORD_CHARS_MAX: Final = 1_024
USERS_MAX: Final = 10_000
CHECKS_MAX: Final = 100  # passwords being checked or waiting for it; more are refused
CHECK_THREADS: Final = 2
REMEMBERED_MAX: Final = 1_000  # right passwords, so that a storm of reconnects burns no CPU
DECOY_SECRET: Final = "scram_decoy_secret"  # noqa: S105 - the name of a row

_T = TypeVar("_T")


class AddedUser(NamedTuple):
    """User that was added. ``login_is_new``: login is required from now on."""

    name: str
    is_administrator: bool
    login_is_new: bool


class StoredUsers:
    """``Authenticator`` over the metadata store. Loop only.

    ``on_removed`` hooks run with the name of a user that is gone, and with ``ANONYMOUS`` when
    login becomes required. See ``Authenticator`` for ``on_change`` and ``after_change``.
    """

    def __init__(self, metadata: MetadataStore, policy: LoginPolicy | None = None) -> None:
        self.policy = policy or LoginPolicy(metadata)
        self.on_removed: list[Callable[[str], None]] = []
        self.on_change: list[Callable[[], None]] = []
        self.after_change: list[Callable[[], Awaitable[None]]] = []
        self._metadata = metadata
        self._changes = Changes(metadata.feed)
        self._users: dict[str, Sequence[Credential]] = {}
        self._declared: Mapping[str, Sequence[Credential]] = {}
        self._decoy_secret = b""
        self._remember_key = secrets.token_bytes(32)
        self._remembered: OrderedDict[bytes, Credential] = OrderedDict()
        self._threads = ThreadPoolExecutor(CHECK_THREADS, thread_name_prefix="passwords")
        self._checks = 0
        self.iterations = iterations_of(AuthConfig())
        """Rounds of PBKDF2 for new passwords, by mechanism."""
        self._usual_iterations: Mapping[ScramMechanism, int] = {}

    async def load(self) -> None:
        """Load all users from the store; once, before any other call."""
        self._decoy_secret = bytes.fromhex(
            await self._metadata.once(DECOY_SECRET, secrets.token_hex(32))
        )
        self._users = {**await self._metadata.users(), **self._declared}
        await self.policy.load()
        self._note_iterations()
        self._changes.follow(ChangeKind.USER, self._reload)

    async def _reload(self, keys: frozenset[str] | None) -> None:
        """See ``gateway.metadata.feed.Reload``; a key without a name is of the settings."""
        names = None if keys is None else {name for key in keys for name in parts_of(key)}
        stored = {**await self._metadata.users(names), **self._declared}
        known = self._users.keys() if names is None else names & self._users.keys()
        gone = sorted(known - stored.keys())
        changed = {one: new for one, new in stored.items() if self._users.get(one) != new}
        is_changed, requires_login = await self.policy.reload()
        if not (gone or changed or is_changed):
            return
        for name in gone:
            del self._users[name]
        self._users |= changed
        self._note_change()
        for name in [*gone, ANONYMOUS] if requires_login else gone:
            self._disown(name)
        await self._settle()

    def declare(self, users: Mapping[str, Sequence[Credential]]) -> None:
        """Add the users of the config file, after ``load``; they replace stored users by name."""
        self._declared = users
        self._users = {**self._users, **users}
        self._note_change()

    async def redeclare(self, users: Mapping[str, Sequence[Credential]]) -> None:
        """Replace the users of the config file; connections of removed ones are closed.

        Errors: ``StorageUnavailable``; then nothing has changed.
        """
        await self._changes.make(self._redeclare, users)

    async def _redeclare(self, users: Mapping[str, Sequence[Credential]]) -> None:
        stored = await self._metadata.users()
        gone = self._declared.keys() - users.keys() - stored.keys()
        self._users = dict(stored)
        self.declare(users)
        for name in sorted(gone):
            self._disown(name)
        await self._settle()

    def is_declared(self, name: str) -> bool:
        """Say whether a user is declared in the config file, and so read-only here."""
        return name in self._declared

    async def close(self) -> None:
        """Wait for running changes, and end the threads."""
        await self._changes.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    @property
    def required(self) -> bool:
        """See ``Authenticator``."""
        return self.policy.required

    def is_super_user(self, name: str) -> bool:
        """See ``Authenticator``."""
        return self.policy.is_super_user(name)

    def is_known(self, name: str) -> bool:
        """See ``Authenticator``."""
        return name in self._users

    def names(self) -> list[str]:
        """Return the names of all users, sorted."""
        return sorted(self._users)

    def credentials(self, name: str) -> Sequence[ScramCredential]:
        """Return a user's SCRAM credentials; none for an unknown user."""
        return [one for one in self.stored(name) if isinstance(one, ScramCredential)]

    def stored(self, name: str) -> Sequence[Credential]:
        """Return all credentials of a user: those of SCRAM, or the hash of a password."""
        return self._users.get(name, ())

    async def add_user(
        self, name: str, password: str, *, administers: bool | None = None
    ) -> AddedUser:
        """Add a user, the first one as an administrator, or change a password.

        The first one administers, and login is required from then on (``LoginPolicy``).
        ``administers``: whether this user is an administrator; None: the first user is, and others
        stay what they are. Errors: ``InvalidRequest``, ``Overloaded``, ``StorageUnavailable``.
        """
        prepared, credentials = await self._credentials(name, password)
        return await self._changes.make(
            self._add, prepared, [*credentials], administers=administers
        )

    async def put_user(self, name: str, password: str) -> str:
        """Add an ordinary user, or change a password; return the prepared name.

        Errors: ``InvalidRequest``, ``Overloaded``, ``StorageUnavailable``.
        """
        prepared, credentials = await self._credentials(name, password)
        await self.put_credentials(prepared, credentials)
        return prepared

    async def derive(self, name: str, password: str) -> list[ScramCredential]:
        """Derive credentials of a password. Errors: ``InvalidRequest``, ``Overloaded``."""
        return (await self._credentials(name, password))[1]

    async def _credentials(self, name: str, password: str) -> tuple[str, list[ScramCredential]]:
        prepared, secret = _check_new(name, password)
        return prepared, await self._derive(lambda: _derived(secret, self.iterations))

    async def put_credentials(self, name: str, credentials: Sequence[Credential]) -> None:
        """Add a user with derived credentials, or replace a user's credentials."""
        if not credentials:
            msg = "a user has at least one credential"
            raise InvalidRequest(msg)
        await self._changes.make(self._put, name, list(credentials), administers=None)

    async def restore_user(
        self, name: str, credentials: Sequence[Credential], *, administers: bool
    ) -> None:
        """Add a user with derived credentials, or replace them, and say whether it administers.

        Login is required from the first user on, as with ``add_user``. Errors as there.
        """
        if not credentials:
            raise InvalidRequest("a user has at least one credential")
        await self._changes.make(
            self._add, check_name(name), list(credentials), administers=administers
        )

    async def remove_user(self, name: str) -> bool:
        """Remove a user and return whether it existed; its connections are closed."""
        return await self._changes.make(self._remove, name)

    async def authenticate_plain(self, username: str, password: str) -> str:
        """See ``Authenticator``."""
        name, secret = saslprep(username), saslprep(password)
        if len(secret) > PASSWORD_CHARS_MAX:
            raise _wrong()
        credential = self._any_credential(name)
        checked = password if isinstance(credential, PasswordHash) else secret
        text = f"{name}\0{checked}".encode(errors="surrogatepass")
        key = hmac.digest(self._remember_key, text, "sha256")
        if self._remembered.get(key) is not credential:
            if not await self._derive(lambda: self._fits(name, credential, checked)):
                raise _wrong()
            if self._any_credential(name) is not credential:  # changed while we were checking
                raise _wrong()
            self._remembered[key] = credential
            if len(self._remembered) > REMEMBERED_MAX:
                self._remembered.popitem(last=False)
        self._remembered.move_to_end(key)
        return name

    async def scram_credential(
        self, username: str, mechanism: ScramMechanism
    ) -> ScramCredential:
        """See ``Authenticator``."""
        for credential in self.credentials(username):
            if credential.mechanism is mechanism:
                return credential
        return self._decoy(username, mechanism)

    def _fits(self, name: str, credential: Credential, password: str) -> bool:
        if isinstance(credential, ScramCredential):
            return fits(credential, password)
        fits(self._decoy(name, ScramMechanism.SHA_256), password)  # takes as long as for others
        return credential.fits(password)

    def _any_credential(self, name: str) -> Credential:
        credentials = self._users.get(name)
        # A decoy is a new object each time, and so is never found among the remembered.
        return credentials[0] if credentials else self._decoy(name, ScramMechanism.SHA_256)

    def _decoy(self, name: str, mechanism: ScramMechanism) -> ScramCredential:
        iterations = self._usual_iterations.get(mechanism, self.iterations[mechanism])
        return make_decoy(mechanism, name, secret=self._decoy_secret, iterations=iterations)

    async def _derive(self, work: Callable[[], _T]) -> _T:
        if self._checks >= CHECKS_MAX:
            msg = f"{CHECKS_MAX} passwords are being checked"
            raise Overloaded(msg)
        self._checks += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._checks -= 1

    async def _add(
        self, name: str, credentials: list[Credential], *, administers: bool | None
    ) -> AddedUser:
        first = self.policy.of_new_user(has_users=bool(self._users))
        if administers is None and first.is_administrator:
            administers = True
        await self._put(
            name, credentials, administers=administers, requires_login=first.requires_login
        )
        return AddedUser(name, self.policy.is_super_user(name), first.requires_login)

    async def _put(
        self,
        name: str,
        credentials: list[Credential],
        *,
        administers: bool | None,
        requires_login: bool = False,
    ) -> None:
        self._check_not_declared(name)
        if name not in self._users and len(self._users) >= USERS_MAX:
            msg = f"there are {USERS_MAX} users"
            raise Overloaded(msg)
        await self._metadata.put_user(
            name, credentials, administers=administers, requires_login=requires_login
        )
        self._users[name] = credentials
        self.policy.adopt(name, administers=administers, requires_login=requires_login)
        self._note_change()
        if requires_login:
            self._disown(ANONYMOUS)
        if requires_login or administers is not None:
            await self._settle()

    async def _remove(self, name: str) -> bool:
        self._check_not_declared(name)
        removed = await self._metadata.delete_user(name)
        self._users.pop(name, None)
        self.policy.adopt(name, administers=False, requires_login=False)
        self._note_change()
        if removed:
            self._disown(name)  # who else is connected may do what it might before
        return removed

    def _check_not_declared(self, name: str) -> None:
        if name in self._declared:
            msg = f"user {name!r} is set in the config file"
            raise PolicyViolation(msg)

    def _note_iterations(self) -> None:
        """Find the most common iteration count, so that decoys do not reveal unknown names."""
        counts: Counter[tuple[ScramMechanism, int]] = Counter(
            (credential.mechanism, credential.iterations)
            for name in self._users
            for credential in self.credentials(name)
        )
        rarest_first = reversed(counts.most_common())
        self._usual_iterations = {
            mechanism: iterations for (mechanism, iterations), _ in rarest_first
        }

    def _note_change(self) -> None:
        self._note_iterations()
        for hook in self.on_change:
            hook()

    def _disown(self, name: str) -> None:
        for hook in self.on_removed:
            hook(name)

    async def _settle(self) -> None:
        for settle in self.after_change:
            await settle()


def iterations_of(config: AuthConfig) -> Mapping[ScramMechanism, int]:
    """Return the iteration counts for new passwords."""
    return {
        ScramMechanism.SHA_256: config.sha256_iterations,
        ScramMechanism.SHA_512: config.sha512_iterations,
    }


def new_credentials(password: str, config: AuthConfig) -> list[ScramCredential]:
    """Return the credentials of a new password. Errors: ``InvalidRequest``."""
    return _derived(_check_password(password), iterations_of(config))


def _derived(secret: str, iterations: Mapping[ScramMechanism, int]) -> list[ScramCredential]:
    return [
        make_credential(
            mechanism,
            secret,
            salt=secrets.token_bytes(SALT_BYTES),
            iterations=iterations[mechanism],
        )
        for mechanism in ScramMechanism
    ]


def check_name(name: str) -> str:
    """Return a user's name in its prepared form. Errors: ``InvalidRequest``."""
    prepared = _prepare(name)
    if not 1 <= len(prepared) <= NAME_CHARS_MAX or prepared in {ANONYMOUS, EVERYBODY}:
        msg = f"{prepared[:80]!r} cannot be a user's name"
        raise InvalidRequest(msg)
    return prepared


def _prepare(text: str) -> str:
    try:
        return saslprep(text, stored=True)
    except Unauthenticated as error:
        raise InvalidRequest(str(error)) from error


def _check_new(name: str, password: str) -> tuple[str, str]:
    return check_name(name), _check_password(password)


def _check_password(password: str) -> str:
    secret = _prepare(password)
    if not 1 <= len(secret) <= PASSWORD_CHARS_MAX:
        msg = f"a password has 1 to {PASSWORD_CHARS_MAX} characters"
        raise InvalidRequest(msg)
    return secret


def _wrong() -> Unauthenticated:
    return Unauthenticated("wrong user name or password")
