"""Public keys of an OAuth 2 authority: a JSON Web Key Set (RFC 7517) in a file or at a URL.

Reading and parsing happen in a thread. A set that cannot be read leaves the one before in force.
"""

import asyncio
import json
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

import structlog
from jwt import PyJWK
from jwt.exceptions import PyJWTError

from gateway.clock import Clock
from gateway.config.oauth import OauthConfig
from gateway.errors import StorageUnavailable

KEYS_MAX: Final = 100
_MS_PER_S: Final = 1_000

log = structlog.get_logger()


class KeysUnreadable(StorageUnavailable):
    """The key set cannot be read, or is none."""


class KeySet:
    """Keys by their ids; a key without one has the id "". Loop only."""

    def __init__(self, config: OauthConfig, clock: Clock) -> None:
        self.keys: Mapping[str, PyJWK] = {}
        self.reads_failed = 0
        self._config = config
        self._clock = clock
        self._read_ms: int | None = None  # when the last read began
        self._reading: asyncio.Task[None] | None = None

    async def load(self) -> None:
        """Read the keys. Error: ``KeysUnreadable``."""
        self._read_ms = self._clock.monotonic_ms()
        self.keys = await asyncio.to_thread(read_keys, self._config)

    async def find(self, key_id: str) -> PyJWK | None:
        """Return a key; an unknown one is looked for in a fresh set, at a bounded rate.

        An old set is read anew beside the login.
        """
        if self._is_due(self._config.refresh_s):
            self._refresh()
        key = self.keys.get(key_id)
        if key is None:
            if self._is_due(self._config.refresh_s_min):
                self._refresh()
            if self._reading is not None:
                await asyncio.shield(self._reading)
            key = self.keys.get(key_id)
        return key

    async def close(self) -> None:
        """End a read that is under way."""
        if self._reading is not None:
            self._reading.cancel()

    def _is_due(self, after_s: int) -> bool:
        if self._read_ms is None:
            return True
        return self._clock.monotonic_ms() - self._read_ms >= after_s * _MS_PER_S

    def _refresh(self) -> None:
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._read())
            self._reading.add_done_callback(self._ended)

    async def _read(self) -> None:
        try:
            await self.load()
        except KeysUnreadable as error:
            self.reads_failed += 1
            log.warning("keys of tokens not read anew, the old ones stay", error=str(error))

    def _ended(self, _task: object) -> None:
        self._reading = None


def read_keys(config: OauthConfig) -> dict[str, PyJWK]:
    """Return the keys of a set that verify signatures. Error: ``KeysUnreadable``."""
    assert config.jwks is not None
    try:
        data = _fetched(config) if config.is_url else _read_file(config)
        if len(data) > config.jwks_bytes_max:
            msg = f"{config.jwks}: more than {config.jwks_bytes_max} bytes"
            raise KeysUnreadable(msg)
        return parse_keys(data)
    except (OSError, HTTPException, ValueError) as error:
        msg = f"{config.jwks}: {error}"
        raise KeysUnreadable(msg) from error


def parse_keys(data: bytes) -> dict[str, PyJWK]:
    """Return the usable keys of a set; others, as for encryption, are left out.

    Error: ``ValueError`` for what is no set, or one without a usable key.
    """
    document = json.loads(data)
    entries: Any = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list) or len(entries) > KEYS_MAX:
        msg = f"not a JSON Web Key Set of at most {KEYS_MAX} keys"
        raise ValueError(msg)
    keys: dict[str, PyJWK] = {}
    for entry in entries:
        if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
            continue
        if entry.get("kty") == "oct":
            continue  # a shared secret is no public key
        try:
            key = PyJWK(entry)
        except (PyJWTError, ValueError, TypeError):
            continue
        keys[str(entry.get("kid", ""))] = key
    if not keys:
        msg = "there is no usable key"
        raise ValueError(msg)
    return keys


def _read_file(config: OauthConfig) -> bytes:
    with Path(str(config.jwks)).open("rb") as file:
        return file.read(config.jwks_bytes_max + 1)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect may lead to a place without TLS, so that none is followed."""

    def redirect_request(self, *_: Any) -> None:  # noqa: ANN401 - urllib's
        """Follow no redirect: urllib raises the status as an error."""


def _fetched(config: OauthConfig) -> bytes:
    opener = urllib.request.build_opener(_NoRedirects)
    request = urllib.request.Request(str(config.jwks))  # noqa: S310 - https, by the config
    with opener.open(request, timeout=config.timeout_s) as response:
        data: bytes = response.read(config.jwks_bytes_max + 1)
        return data
