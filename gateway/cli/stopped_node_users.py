"""Users and access keys of a stopped node: the first of them, before its first start."""

from collections.abc import Mapping
from typing import Any

from gateway.auth.access_keys import AccessKeys
from gateway.auth.declared import declared_names
from gateway.auth.login_policy import LoginPolicy
from gateway.auth.users import StoredUsers, iterations_of
from gateway.cli.stopped_node import stopped_metadata
from gateway.config.settings import Settings


async def add_user(settings: Settings, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Add a user of a stopped node."""
    async with stopped_metadata(settings) as metadata:
        users = StoredUsers(metadata, LoginPolicy.of(metadata, settings))
        users.iterations = iterations_of(settings.auth)
        try:
            await users.load()
            users.declare(declared_names(settings.users))
            added = await users.add_user(
                name, body["password"], administers=body["administrator"]
            )
            return {
                "administrator": added.is_administrator,
                "login_is_new": added.login_is_new,
                "authentication_required": users.required,
            }
        finally:
            await users.close()


async def add_key(settings: Settings, user: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Create an access key of a stopped node."""
    async with stopped_metadata(settings) as metadata:
        keys = AccessKeys(metadata)
        try:
            await keys.load()
            return (await keys.add(user, **wanted))._asdict()
        finally:
            await keys.close()
