"""SIGHUP: certificates are read anew, and those settings that can change while a node runs.

Nothing of it ends the node: what cannot be read or used is logged, and what was there stays.
"""

import ssl
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import structlog

from gateway.auth.logins import Logins
from gateway.config.checker import InvalidSettings
from gateway.config.settings import Settings
from gateway.config.text import as_tables
from gateway.listener import Listener

LOGIN_KEYS: Final = frozenset(
    {
        "auth.failure_delay_ms",
        "auth.failure_delay_ms_max",
        "auth.failure_memory_ms",
        "auth.failures_remembered_max",
        "auth.delayed_logins_per_ip_max",
    }
)
"""Settings that hold from SIGHUP on; all others hold from the next start on."""

log = structlog.get_logger()


class Reloading:
    """Does what SIGHUP asks for. ``read`` reads the settings from where they were read first."""

    def __init__(
        self,
        settings: Settings,
        read: Callable[[], Settings] | None,
        adapters: Mapping[str, Any],
        logins: Logins,
    ) -> None:
        self._settings = settings
        self._read = read
        self._adapters = adapters
        self._logins = logins

    def reload(self) -> None:
        """Read certificates and settings anew; it does not raise for what is wrong with them."""
        for adapter in self._adapters.values():
            for listener in getattr(adapter, "listeners", ()):
                _reload_certificates(listener)
        if self._read is None:
            return
        try:
            found = self._read()
        except InvalidSettings as error:
            for line in str(error).splitlines():
                log.warning("settings not read anew, the old ones stay", detail=line)
            return
        self._apply(found)

    def _apply(self, found: Settings) -> None:
        changed = set(_changed(as_tables(self._settings), as_tables(found)))
        self._logins.adopt(found.auth)
        held = sorted(changed & LOGIN_KEYS)
        log.info("settings read anew", changed=", ".join(held) or "nothing")
        if later := sorted(changed - LOGIN_KEYS):
            log.warning("these settings hold from the next start on", keys=", ".join(later))


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
