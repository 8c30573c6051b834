"""SIGHUP: reload of certificates and of the settings that may change at run time.

Nothing of it ends the node: what cannot be read or used is logged, and what was there stays.
"""

import asyncio
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import structlog

from gateway.auth.access_keys import AccessKeys
from gateway.auth.declared import read_declared
from gateway.auth.login_throttle import LoginThrottle
from gateway.auth.rules import RuleBook
from gateway.auth.users import StoredUsers
from gateway.config.settings import Settings
from gateway.config.text import as_tables
from gateway.errors import GatewayError
from gateway.kernel import HasListeners, ProtocolAdapter
from gateway.listener import Listener
from gateway.quotas.declared import declared_quotas
from gateway.quotas.manager import Quotas

HELD_KEYS: Final = frozenset(
    {
        "users",
        "quotas",
        "auth.rules",
        "auth.super_users",
        "auth.failure_delay_ms",
        "auth.failure_delay_ms_max",
        "auth.failure_memory_ms",
        "auth.failures_remembered_max",
        "auth.delayed_logins_per_ip_max",
        "auth.checks_per_ip_max",
    }
)
"""Settings that hold from SIGHUP on; all others hold from the next start on."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Access:
    """Parts of a node that use the settings for access and quotas."""

    users: StoredUsers
    rules: RuleBook
    keys: AccessKeys
    logins: LoginThrottle
    quotas: Quotas

    async def adopt(self, found: Settings) -> None:
        """Apply changed settings. Errors: ``InvalidSettings`` and others, for unusable ones.

        Files are read, and rules checked, before anything changes.
        """
        quotas = declared_quotas(found.quotas)
        declared = await read_declared(found.users, self.users)
        await self.rules.replace_static(found.auth.rules)
        self.users.policy.name_super_users(found.auth.super_users)
        self.rules.forget_answers()
        await self.users.redeclare(declared.users)
        self.keys.declare(declared.keys)
        self.logins.adopt(found.auth)
        self.quotas.declare(quotas)


class Reloading:
    """Handler of SIGHUP. ``read`` reads the settings from their first source."""

    def __init__(
        self,
        settings: Settings,
        read: Callable[[], Settings] | None,
        adapters: Mapping[str, ProtocolAdapter],
        access: Access,
    ) -> None:
        self._settings = settings
        self._read = read
        self._adapters = adapters
        self._access = access
        self._task: asyncio.Task[None] | None = None
        self._is_asked_again = False

    def reload(self) -> None:
        """Start a reload of certificates and settings, after a running one."""
        self._is_asked_again = True
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(self._ended)

    def close(self) -> None:
        """Cancel a running reload: the node stops."""
        if self._task is not None:
            self._task.cancel()

    def _ended(self, _: object) -> None:
        self._task = None

    async def _run(self) -> None:
        while self._is_asked_again:
            self._is_asked_again = False
            for adapter in self._adapters.values():
                if isinstance(adapter, HasListeners):
                    for listener in adapter.listeners:
                        _reload_certificates(listener)
            if self._read is not None:
                await self._reload_settings(self._read)

    async def _reload_settings(self, read: Callable[[], Settings]) -> None:
        try:
            found = read()
            await self._access.adopt(found)
        except GatewayError as error:
            for line in str(error).splitlines():
                log.warning("settings not read anew, the old ones stay", detail=line)
            return
        changed = set(_changed(as_tables(self._settings), as_tables(found)))
        held = sorted(changed & HELD_KEYS)
        log.info("settings read anew", changed=", ".join(held) or "nothing")
        if later := sorted(changed - HELD_KEYS):
            log.warning("these settings hold from the next start on", keys=", ".join(later))
        if found.users and found.auth.required is None and not self._access.users.required:
            log.warning("users: login is not required before the next start")


def _reload_certificates(listener: Listener) -> None:
    try:
        if listener.reload_certificates():
            log.info("certificates read anew", listener=listener.name)
    except (OSError, ValueError) as error:
        kind = "TLS" if isinstance(error, ssl.SSLError) else "file"
        log.warning(
            "certificates not read anew, the old ones stay",
            listener=listener.name,
            detail=f"{kind}: {error}",
        )


def _changed(one: Mapping[str, Any], other: Mapping[str, Any], path: str = "") -> Iterator[str]:
    for key in one.keys() | other.keys():
        before, after = one.get(key), other.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from _changed(before, after, f"{path}{key}.")
        elif before != after:
            yield f"{path}{key}"
