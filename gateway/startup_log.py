"""Log line of a node's start: version, data, listeners and access; and its addresses."""

import sys
from collections.abc import Iterable
from importlib.metadata import version

from gateway.auth.access_keys import AccessKeys
from gateway.auth.users import StoredUsers
from gateway.config.advice import listeners_of
from gateway.config.secrets import mask_url
from gateway.config.settings import Settings
from gateway.kernel import ProtocolAdapter


def announce(adapters: Iterable[ProtocolAdapter], admin_url: str) -> None:
    """Print a node's addresses, and a line to try each."""
    endpoints = [endpoint for adapter in adapters for endpoint in adapter.endpoints()]
    names = "  ".join(f"{endpoint.name} {endpoint.url}" for endpoint in endpoints)
    lines = [f"headgate ready  {names}  admin {admin_url}"]
    lines += [f"  try {endpoint.name:<8} {endpoint.try_it}" for endpoint in endpoints]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def node_fields(settings: Settings, users: StoredUsers, keys: AccessKeys) -> dict[str, str]:
    """Return the fields of the line of a node with these users and keys."""
    has_users = bool(users.names() or keys.keys())
    return startup_fields(settings, users_required=users.required, has_users=has_users)


def startup_fields(
    settings: Settings, *, users_required: bool, has_users: bool = True
) -> dict[str, str]:
    """Return the fields of the line, without secrets."""
    flush = getattr(settings.storage.options, "flush", None)
    return {
        "version": version("headgate"),
        "data_dir": str(settings.node.data_dir.absolute()),
        "storage": settings.storage.adapter,
        "flush": str(flush or "as the storage does"),
        "metadata": mask_url(settings.metadata.database_url),
        "listeners": ", ".join(_listeners(settings)),
        "access": _access(settings, users_required=users_required, has_users=has_users),
    }


def _listeners(settings: Settings) -> list[str]:
    found = [f"admin {settings.admin.bind}"]
    for name, config in settings.adapters.items():
        for path, listener in listeners_of(name, config):
            bind = getattr(listener, "bind", None)
            if bind is not None:
                tls = " (TLS)" if getattr(listener, "tls_cert", None) is not None else ""
                found.append(f"{path} {bind}{tls}")
    return found


def _access(settings: Settings, *, users_required: bool, has_users: bool) -> str:
    if users_required and not has_users:
        return "users must log in, and there are none: headgate users add NAME"
    if users_required:
        return "users must log in"
    if settings.node.insecure:
        return "no users: anybody who reaches a listener (node.insecure)"
    return "no users: this machine only"
