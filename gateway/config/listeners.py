"""Checks of all listeners together: no address twice, and certificates that can be loaded."""

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Final

from gateway.config.advice import listeners_of
from gateway.config.base import Address, InvalidSettings, ListenerConfig, parse_address
from gateway.config.settings import Settings

_WILDCARDS: Final = {"0.0.0.0", "::"}  # noqa: S104 - compared, not bound
_LOCALHOST: Final = {"localhost": "127.0.0.1"}
_TLS_FILES: Final = ("tls_cert", "tls_key", "tls_client_ca")


def check_addresses(settings: Settings) -> None:
    """Refuse two listeners on one address. Errors: ``InvalidSettings``, a line for each pair."""
    binds = [("admin.bind", settings.admin.bind)]
    binds += [(f"{path}.bind", listener.bind) for path, listener in _listeners(settings)]
    faults = [
        f"{key}: {bind} is taken by {first_key} ({first}); one of them needs another port"
        for (first_key, first), (key, bind) in combinations(binds, 2)
        if _collide(parse_address(first), parse_address(bind))
    ]
    if faults:
        raise InvalidSettings("\n".join(faults))


def addresses_in_use(settings: Settings) -> list[str]:
    """Return a sentence for each listener whose address another process has.

    A running node has its own: a warning, then. Ports 0 are chosen by the system.
    """
    binds = [("admin.bind", settings.admin.bind)]
    binds += [(f"{path}.bind", listener.bind) for path, listener in _listeners(settings)]
    found = ((key, bind, _cannot_bind(parse_address(bind))) for key, bind in binds)
    return [f"{key}: {bind}: {reason}" for key, bind, reason in found if reason]


def _cannot_bind(address: Address) -> str:
    import socket

    if address.port == 0:
        return ""
    try:
        family, kind, *_, where = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(where)
            trial.listen(1)
    except OSError as error:
        return f"{error.strerror or error}"
    return ""


def check_certificates(settings: Settings) -> None:
    """Load what TLS needs from the files. Errors: ``InvalidSettings``, a line for each fault."""
    faults = [
        fault
        for path, listener in _listeners(settings)
        for fault in _certificate_faults(path, listener)
    ]
    if faults:
        raise InvalidSettings("\n".join(faults))


def _listeners(settings: Settings) -> Iterator[tuple[str, ListenerConfig]]:
    for name, config in settings.adapters.items():
        for path, listener in listeners_of(f"adapters.{name}", config):
            if isinstance(listener, ListenerConfig):
                yield path, listener


def _collide(one: Address, other: Address) -> bool:
    """Whether two addresses collide; a wildcard collides with each address of its family."""
    if one.port != other.port or one.port == 0:
        return False
    hosts = {_LOCALHOST.get(host, host) for host in (one.host, other.host)}
    if len(hosts) == 1:
        return True
    return bool(hosts & _WILDCARDS) and len({":" in host for host in hosts}) == 1


def _certificate_faults(path: str, listener: ListenerConfig) -> Iterator[str]:
    unreadable = list(_unreadable(path, listener))
    yield from unreadable
    if unreadable or listener.tls_cert is None:
        return
    import ssl

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(listener.tls_cert, listener.tls_key)
    except ssl.SSLError as error:
        yield (
            f"{path}.tls_cert: {listener.tls_cert} and {listener.tls_key} are not a certificate "
            f"and its key, both in PEM: {error.reason or error}"
        )
    try:
        if listener.tls_client_ca is not None:
            context.load_verify_locations(listener.tls_client_ca)
    except ssl.SSLError as error:
        yield (
            f"{path}.tls_client_ca: {listener.tls_client_ca} is not a certificate in PEM: "
            f"{error.reason or error}"
        )


def _unreadable(path: str, listener: ListenerConfig) -> Iterator[str]:
    for key in _TLS_FILES:
        file: Path | None = getattr(listener, key)
        try:
            if file is not None:
                file.open("rb").close()
        except OSError as error:
            yield f"{path}.{key}: {file}: {error.strerror or error}"
