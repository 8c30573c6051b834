"""Users, their credentials and keys, rules and single values in SQL: functions of a connection.

They run in the worker thread of ``gateway.metadata.sql``, which begins and commits.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, insert, select

from gateway.auth.password_hashes import Credential, HashingAlgorithm, PasswordHash
from gateway.auth.ports import Operation, PatternKind, ResourceType, Rule
from gateway.auth.scram import ScramCredential, ScramMechanism
from gateway.metadata.schema import (
    ACCESS_KEYS,
    ACL_RULES,
    ADMINISTRATORS,
    META,
    SCRAM_CREDENTIALS,
    USERS,
)
from gateway.metadata.store import AccessKey, AccessSettings

AUTH_REQUIRED: Final = "auth_required"
AUTH_DEFAULT: Final = "auth_default"  # of a directory that an earlier version has made
_HASHES: Final = frozenset(one.value for one in HashingAlgorithm)
_TRUE: Final = "true"
_FALSE: Final = "false"


def get_value(connection: Connection, key: str) -> str | None:
    """Return the value of ``key``."""
    return connection.scalar(select(META.c.value).where(META.c.key == key))


def set_value(connection: Connection, key: str, value: str) -> None:
    """Set ``key``."""
    connection.execute(delete(META).where(META.c.key == key))
    connection.execute(insert(META).values(key=key, value=value))


def set_once(connection: Connection, key: str, value: str) -> str:
    """Set ``key`` unless it has a value; return its value."""
    known = get_value(connection, key)
    if known is not None:
        return known
    connection.execute(insert(META).values(key=key, value=value))
    return value


def load_users(
    connection: Connection, names: Collection[str] | None = None
) -> dict[str, list[Credential]]:
    """Return the credentials of every user, or of those with these names."""
    found, credentials = select(USERS.c.name).order_by(USERS.c.name), select(SCRAM_CREDENTIALS)
    if names is not None:
        found = found.where(USERS.c.name.in_(names))
        credentials = credentials.where(SCRAM_CREDENTIALS.c.user_name.in_(names))
    users: dict[str, list[Credential]] = {name: [] for name in connection.scalars(found)}
    for row in connection.execute(credentials):
        if row.user_name in users:  # or it was stored between the two statements
            users[row.user_name].append(_to_credential(row))
    return users


def _to_credential(row: Row[Any]) -> Credential:
    if row.mechanism in _HASHES:
        return PasswordHash(HashingAlgorithm(row.mechanism), row.salt, row.stored_key)
    return ScramCredential(
        ScramMechanism(row.mechanism), row.salt, row.iterations, row.stored_key, row.server_key
    )


def _to_values(name: str, credential: Credential) -> dict[str, Any]:
    """Return a row; a hash of a password has no server key and one iteration."""
    if isinstance(credential, PasswordHash):
        mechanism, iterations = credential.algorithm.value, 1
        stored_key, server_key = credential.digest, b""
    else:
        mechanism, iterations = credential.mechanism.value, credential.iterations
        stored_key, server_key = credential.stored_key, credential.server_key
    return {
        "user_name": name,
        "mechanism": mechanism,
        "salt": credential.salt,
        "iterations": iterations,
        "stored_key": stored_key,
        "server_key": server_key,
    }


def put_user(
    connection: Connection,
    name: str,
    credentials: Iterable[Credential],
    *,
    administers: bool | None = None,
    requires_login: bool = False,
) -> None:
    """Insert a user, or replace its credentials; see ``MetadataStore.put_user``."""
    if requires_login:
        set_required(connection, required=True)
    if administers is not None:
        connection.execute(delete(ADMINISTRATORS).where(ADMINISTRATORS.c.user_name == name))
    if administers:
        connection.execute(insert(ADMINISTRATORS).values(user_name=name))
    connection.execute(delete(USERS).where(USERS.c.name == name))
    connection.execute(insert(USERS).values(name=name))
    connection.execute(
        insert(SCRAM_CREDENTIALS), [_to_values(name, credential) for credential in credentials]
    )


def delete_user(connection: Connection, name: str) -> bool:
    """Remove a user with its access keys and, by their foreign key, its credentials."""
    connection.execute(delete(ADMINISTRATORS).where(ADMINISTRATORS.c.user_name == name))
    removed = connection.execute(delete(USERS).where(USERS.c.name == name)).rowcount > 0
    if removed:
        connection.execute(delete(ACCESS_KEYS).where(ACCESS_KEYS.c.user_name == name))
    return removed


def load_access_settings(connection: Connection) -> AccessSettings:
    """Return the administrators, whether login is required, and the default of rules."""
    return AccessSettings(
        get_value(connection, AUTH_REQUIRED) == _TRUE,
        get_value(connection, AUTH_DEFAULT),
        frozenset(connection.scalars(select(ADMINISTRATORS.c.user_name))),
    )


def set_required(connection: Connection, *, required: bool) -> None:
    """Store whether login is required."""
    set_value(connection, AUTH_REQUIRED, _TRUE if required else _FALSE)


def load_access_keys(
    connection: Connection, key_ids: Collection[str] | None = None
) -> list[AccessKey]:
    """Return all access keys, or those of these ids, in no order."""
    keys = select(ACCESS_KEYS)
    if key_ids is not None:
        keys = keys.where(ACCESS_KEYS.c.key_id.in_(key_ids))
    rows = connection.execute(keys)
    return [AccessKey(row.key_id, row.secret, row.user_name, row.account) for row in rows]


def put_access_key(connection: Connection, key: AccessKey) -> None:
    """Insert or replace an access key."""
    delete_access_key(connection, key.key_id)
    connection.execute(
        insert(ACCESS_KEYS).values(
            key_id=key.key_id, secret=key.secret, user_name=key.user, account=key.account
        )
    )


def delete_access_key(connection: Connection, key_id: str) -> bool:
    """Remove an access key and say whether there was one."""
    gone = delete(ACCESS_KEYS).where(ACCESS_KEYS.c.key_id == key_id)
    return connection.execute(gone).rowcount > 0


def load_rules(connection: Connection) -> list[Rule]:
    """Return all rules, oldest first, also of types that nothing of this node knows."""
    return [
        Rule(
            principal=row.principal,
            operation=Operation(row.operation),
            resource_type=ResourceType(row.resource_type),
            pattern_kind=PatternKind(row.pattern_kind),
            pattern=row.pattern,
            allow=row.allow,
            protocol=row.protocol,
            host=row.host,
            client=row.client,
        )
        for row in connection.execute(select(ACL_RULES).order_by(ACL_RULES.c.id))
    ]


def add_rules(connection: Connection, rules: Sequence[Rule]) -> None:
    """Insert the rules that are not there yet."""
    for rule in dict.fromkeys(rules):
        if connection.scalar(select(ACL_RULES.c.id).where(_is(rule))) is None:
            connection.execute(insert(ACL_RULES).values(_rule_values(rule)))


def delete_rules(connection: Connection, rules: Sequence[Rule]) -> None:
    """Remove those of the rules that are there."""
    for rule in rules:
        connection.execute(delete(ACL_RULES).where(_is(rule)))


def _rule_values(rule: Rule) -> dict[str, Any]:
    return rule._asdict() | {
        "operation": rule.operation.value,
        "resource_type": rule.resource_type.name,
        "pattern_kind": rule.pattern_kind.name,
    }


def _is(rule: Rule) -> ColumnElement[bool]:
    return and_(*(ACL_RULES.c[name] == value for name, value in _rule_values(rule).items()))
