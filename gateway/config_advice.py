"""What the settings let happen: exposure that is refused, and surprises worth a warning."""

from gateway.config import Settings, parse_address
from gateway.config_checker import InvalidSettings


def check_exposure(settings: Settings, *, users_configured: bool) -> None:
    """Refuse to listen beyond loopback when nobody is asked who they are.

    A listener asks when users are configured and its adapter knows passwords, or when it wants
    client certificates. ``node.insecure = true`` allows the rest. The admin endpoint asks for
    its token always. Errors: ``InvalidSettings``.
    """
    if settings.node.insecure:
        return
    for name, config in settings.adapters.items():
        bind = getattr(config, "bind", None)
        if not isinstance(bind, str) or parse_address(bind).is_loopback:
            continue
        asks = users_configured and getattr(config, "authenticates_users", False)
        if not asks and getattr(config, "tls_client_ca", None) is None:
            msg = (
                f"adapters.{name}.bind: {bind} is open to others and nobody is asked who they "
                "are; add users (headgate users add --offline), demand client certificates "
                "(tls_client_ca), or set node.insecure = true"
            )
            raise InvalidSettings(msg)


def warnings(settings: Settings) -> list[str]:
    """Return what is legal but may surprise, one sentence each."""
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
    return found
