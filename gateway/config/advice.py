"""Checks across settings: exposure that is refused, and surprises worth a warning."""

import errno
from collections.abc import Iterator

from gateway.config.base import FrozenConfig, InvalidSettings, ListenerConfig, parse_address
from gateway.config.settings import Settings


def check_exposure(settings: Settings, *, users_configured: bool) -> None:
    """Refuse to listen beyond loopback without login.

    A listener asks when login is required and its adapter knows passwords, when its adapter
    serves no stranger at all, or when it wants client certificates. ``node.insecure = true``
    allows the rest. The admin endpoint asks for its token always. Errors: ``InvalidSettings``.
    """
    if settings.node.insecure:
        return
    for name, config in settings.adapters.items():
        for path, listener in listeners_of(f"adapters.{name}", config):
            bind = getattr(listener, "bind", None)
            if not isinstance(bind, str) or parse_address(bind).is_loopback:
                continue
            asks = users_configured and getattr(listener, "authenticates_users", False)
            asks = asks or getattr(listener, "refuses_strangers", False)
            if not asks and getattr(listener, "tls_client_ca", None) is None:
                msg = (
                    f"{path}.bind: {bind} is open to others and nobody is asked who they "
                    "are; add a user (headgate users add --offline), demand client certificates "
                    "(tls_client_ca), or set node.insecure = true"
                )
                raise InvalidSettings(msg)


def listeners_of(path: str, config: FrozenConfig) -> Iterator[tuple[str, FrozenConfig]]:
    """Yield an adapter's section and those below it that are listeners and enabled."""
    if getattr(config, "listens_itself", True):
        yield path, config
    for name in type(config).model_fields:
        below = getattr(config, name)
        if isinstance(below, ListenerConfig) and getattr(below, "enabled", True):
            yield f"{path}.{name}", below
        elif isinstance(below, tuple):
            for at, one in enumerate(below):
                if isinstance(one, ListenerConfig):
                    yield f"{path}.{name}[{at}]", one


def cannot_listen(key: str, bind: str, error: OSError) -> str:
    """Return the error for an address that is in use, with the key to change."""
    line = f"{key}: {bind}: {error.strerror or error}"
    if error.errno == errno.EADDRINUSE:
        line += f"; set {key} to another address (--set {key}=HOST:PORT)"
    return line


def warnings(settings: Settings) -> list[str]:
    """Return warnings about legal but surprising settings, one sentence each."""
    found = []
    if not settings.adapters:
        found.append("adapters: none is configured; only the admin endpoint will listen")
    if settings.storage.adapter == "memory":
        found.append('storage.adapter: "memory" keeps nothing when the process ends')
    flush = getattr(settings.storage.options, "flush", "group")
    if flush != "group":
        found.append(
            f'storage.flush: with "{flush}" a power loss can take acknowledged messages'
        )
    if settings.node.insecure:
        found.append("node.insecure: anybody who reaches a listener may use it")
    if not parse_address(settings.admin.bind).is_loopback:
        found.append(
            "admin.bind: the token and /metrics travel unencrypted beyond this machine"
        )
    for name, config in settings.adapters.items():
        advise = getattr(config, "warnings", None)
        if advise is not None:
            found += [f"adapters.{name}.{line}" for line in advise(settings)]
    return found
