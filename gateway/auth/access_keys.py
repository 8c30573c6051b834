"""Access keys, for protocols with signed requests (SQS).

Kept in the metadata store, answered from memory. Both sides of a signature compute it from the
secret itself, so the secret is kept as it is, in a file (or database) that is private to the
node; it is shown once, to who makes the key.
"""

import re
import secrets
from base64 import b32encode
from collections.abc import Callable, Iterable
from typing import Final

from gateway.auth.ports import ANONYMOUS, EVERYBODY, NAME_CHARS_MAX
from gateway.auth.scram import saslprep
from gateway.errors import (
    InvalidRequest,
    Overloaded,
    PolicyViolation,
    RequestError,
    Unauthenticated,
)
from gateway.metadata.change_model import ChangeKind, parts_of
from gateway.metadata.changes import Changes
from gateway.metadata.store import AccessKey, MetadataStore

__all__ = ["AccessKey", "AccessKeyExists", "AccessKeys"]

KEYS_MAX: Final = 10_000
ID_PREFIX: Final = "AKIA"  # as AWS's long-term keys begin; some clients look at it
ID_RANDOM_BYTES: Final = 10  # 16 characters of base32: ids have 20, as AWS's have
SECRET_RANDOM_BYTES: Final = 20  # 40 characters, as AWS's have; hexadecimal needs no quoting
# What may stand before the first "/" of a signature's credential scope.
_KEY_ID: Final = re.compile(r"[A-Za-z0-9_.+=@-]{1,128}")
_SECRET: Final = re.compile(r"[!-~]{1,256}")
_ACCOUNT: Final = re.compile(r"(?:[0-9]{12})?")


class AccessKeyExists(RequestError):
    """Access key of this id exists already."""


class AccessKeys:
    """Access keys of all users. Loop only."""

    def __init__(self, metadata: MetadataStore) -> None:
        self.revision = 0
        """Grows when a key came or went, so that what was derived of keys may be kept."""
        self.on_change: list[Callable[[], None]] = []
        self._metadata = metadata
        self._changes = Changes(metadata.feed)
        self._keys: dict[str, AccessKey] = {}  # all of them
        self._stored: dict[str, AccessKey] = {}
        self._declared: dict[str, AccessKey] = {}

    async def load(self) -> None:
        """Load all keys from the store; once, before any other call."""
        self._stored = {key.key_id: key for key in await self._metadata.access_keys()}
        self._keys = {**self._stored, **self._declared}
        self._changes.follow(ChangeKind.ACCESS_KEY, self._reload)

    async def _reload(self, keys: frozenset[str] | None) -> None:
        """See ``gateway.metadata.feed.Reload``."""
        ids = None if keys is None else {parts_of(key)[0] for key in keys}
        found = {key.key_id: key for key in await self._metadata.access_keys(ids)}
        if ids is None:
            stored = found
        else:
            stored = {id_: key for id_, key in self._stored.items() if id_ not in ids} | found
        if stored != self._stored:
            self._stored = stored
            self._keys = {**stored, **self._declared}
            self._note_change()

    def declare(self, keys: Iterable[AccessKey]) -> None:
        """Add the keys of the config file, after ``load``; they replace stored keys of the same id.

        Those that it had before are gone.
        """
        self._declared = {key.key_id: key for key in keys}
        self._keys = {**self._stored, **self._declared}
        self._note_change()

    def is_declared(self, key_id: str) -> bool:
        """Say whether a key is declared in the config file, and so read-only here."""
        return key_id in self._declared

    async def close(self) -> None:
        """Wait for running changes."""
        await self._changes.close()

    def find(self, key_id: str) -> AccessKey | None:
        """Return the key of that id."""
        return self._keys.get(key_id)

    def keys(self) -> list[AccessKey]:
        """Return all keys, sorted by user and id."""
        return sorted(self._keys.values(), key=lambda key: (key.user, key.key_id))

    async def add(
        self,
        user: str,
        *,
        account: str = "",
        key_id: str | None = None,
        secret: str | None = None,
    ) -> AccessKey:
        """Create a key for a user, with or without a password.

        What is left out is chosen at random. ``account``: 12 digits, or empty for the default
        one. Errors: ``InvalidRequest``, ``AccessKeyExists``, ``Overloaded``,
        ``StorageUnavailable``.
        """
        key = AccessKey(
            key_id or _new_key_id(),
            secret or secrets.token_hex(SECRET_RANDOM_BYTES),
            _check_user(user),
            account,
        )
        check_key(key)
        await self._changes.make(self._add, key)
        return key

    async def remove(self, key_id: str) -> bool:
        """Remove a key and return whether it existed; its signatures are refused from now on."""
        return await self._changes.make(self._remove, key_id)

    def forget_user(self, user: str) -> None:
        """Forget the keys of a user that the store has removed."""
        self._stored = {id_: key for id_, key in self._stored.items() if key.user != user}
        self._keys = {**self._stored, **self._declared}
        self._note_change()

    async def _add(self, key: AccessKey) -> None:
        if key.key_id in self._keys:
            raise AccessKeyExists(f"there is an access key {key.key_id} already")
        if len(self._keys) >= KEYS_MAX:
            raise Overloaded(f"there are {KEYS_MAX} access keys")
        await self._metadata.put_access_key(key)
        self._stored[key.key_id] = self._keys[key.key_id] = key
        self._note_change()

    async def _remove(self, key_id: str) -> bool:
        if key_id in self._declared:
            raise PolicyViolation(f"access key {key_id} is set in the config file")
        removed = await self._metadata.delete_access_key(key_id)
        self._stored.pop(key_id, None)
        self._keys.pop(key_id, None)
        self._note_change()
        return removed

    def _note_change(self) -> None:
        self.revision += 1
        for hook in self.on_change:
            hook()


def _new_key_id() -> str:
    return ID_PREFIX + b32encode(secrets.token_bytes(ID_RANDOM_BYTES)).decode("ascii")


def _check_user(user: str) -> str:
    """Return the name as ``StoredUsers`` prepares it, so that both are the same user."""
    try:
        prepared = saslprep(user, stored=True)
    except Unauthenticated as error:
        raise InvalidRequest(str(error)) from error
    if not 1 <= len(prepared) <= NAME_CHARS_MAX or prepared in {ANONYMOUS, EVERYBODY}:
        raise InvalidRequest(f"{prepared[:80]!r} cannot be a user's name")
    return prepared


def check_key(key: AccessKey) -> AccessKey:
    """Return a valid key. Errors: ``InvalidRequest``, without its secret."""
    if not _KEY_ID.fullmatch(key.key_id):
        raise InvalidRequest(f"{key.key_id[:80]!r} is not 1 to 128 of a-zA-Z0-9_.+=@-")
    if not _SECRET.fullmatch(key.secret):
        raise InvalidRequest("a secret has 1 to 256 characters of ASCII, none of them a space")
    if not _ACCOUNT.fullmatch(key.account):
        raise InvalidRequest(f"account {key.account[:80]!r} is not 12 digits")
    return key
