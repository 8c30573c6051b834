"""Settings that all listeners share: `[listeners]`."""

from pydantic import Field

from gateway.config.base import FrozenConfig

_MIB = 1024 * 1024


class ListenersConfig(FrozenConfig):
    """Limits shared by all listeners: descriptors, and bytes of clients not logged in."""

    descriptors_reserve: int = Field(
        default=512,
        ge=16,
        le=1_000_000,
        description="File descriptors that connections leave for files, at most half of the "
        "process's limit (`ulimit -n`, raised to the hard limit at the start). More "
        "connections, of all listeners, are closed at once.",
    )
    unauthenticated_bytes_budget: int = Field(
        default=64 * _MIB,
        ge=_MIB,
        description="Bytes kept of unfinished requests, and of answers that are not read, of all "
        "clients that have not logged in; a client that exceeds it is closed.",
    )
    unauthenticated_bytes_per_ip_budget: int = Field(
        default=16 * _MIB,
        ge=64 * 1024,
        description="The same, of the clients of one IP address.",
    )
