"""Users and access keys of the config file, for ``StoredUsers`` and ``AccessKeys``."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gateway.auth.access_keys import AccessKey, check_key
from gateway.auth.password_hashes import Credential
from gateway.auth.users import StoredUsers, check_name
from gateway.auth.verifiers import parse_verifier
from gateway.config.base import InvalidSettings
from gateway.config.secret_files import read_secret
from gateway.config.users import DeclaredUser
from gateway.errors import InvalidRequest


class Declared(NamedTuple):
    """Declarations of the config file: credentials by user, and keys."""

    users: Mapping[str, Sequence[Credential]]
    keys: Sequence[AccessKey]


async def read_declared(declared: Sequence[DeclaredUser], users: StoredUsers) -> Declared:
    """Read the files that ``[[users]]`` names and derive credentials from passwords.

    Errors: ``InvalidSettings``, with the path of the key.
    """
    names = [_name_of(user, f"users[{at}]") for at, user in enumerate(declared)]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidSettings(f"users: {twice!r} is there twice")
    credentials = [
        await _credentials(user, users, f"users[{at}]") for at, user in enumerate(declared)
    ]
    keys = [
        _key(user, number, f"users[{at}]")
        for at, user in enumerate(declared)
        for number in range(len(user.keys))
    ]
    if len({key.key_id for key in keys}) < len(keys):
        raise InvalidSettings("users: two access keys have the same key_id")
    return Declared(dict(zip(names, credentials, strict=True)), keys)


def declared_names(declared: Sequence[DeclaredUser]) -> dict[str, Sequence[Credential]]:
    """Return the names of the declared users."""
    return {_name_of(user, f"users[{at}]"): () for at, user in enumerate(declared)}


def _name_of(user: DeclaredUser, path: str) -> str:
    try:
        return check_name(user.name)
    except InvalidRequest as error:
        raise InvalidSettings(f"{path}.name: {error}") from error


async def _credentials(
    user: DeclaredUser, users: StoredUsers, path: str
) -> Sequence[Credential]:
    try:
        if user.password_file is not None:
            key = f"{path}.password_file"
            password = read_secret(user.password_file, key)
            return await users.derive(user.name, password)
        key = f"{path}.scram"
        return [parse_verifier(text) for text in user.scram]
    except InvalidRequest as error:
        raise InvalidSettings(f"{key}: {error}") from error


def _key(user: DeclaredUser, number: int, path: str) -> AccessKey:
    declared = user.keys[number]
    place = f"{path}.keys[{number}]"
    secret = read_secret(declared.secret_file, f"{place}.secret_file")
    try:
        key = AccessKey(declared.key_id, secret, check_name(user.name), declared.account)
        return check_key(key)
    except InvalidRequest as error:
        raise InvalidSettings(f"{place}: {error}") from error
