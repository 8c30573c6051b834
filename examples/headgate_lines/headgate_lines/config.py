"""The sections ``[adapters.lines]`` and ``[storage]`` with ``adapter = "drawer"``."""

from typing import ClassVar

from pydantic import Field

from gateway.config.base import BindAddress, FrozenConfig, ListenerConfig


class LinesConfig(ListenerConfig):
    """Settings of the line protocol."""

    authenticates_users: ClassVar[bool] = True

    bind: BindAddress = Field(default="127.0.0.1:7007", description="Address to listen on.")
    line_bytes_max: int = Field(
        default=65_536, ge=16, le=1_048_576, description="Bytes of one line."
    )
    subscriptions_max: int = Field(
        default=100, ge=1, description="Topics that one connection may be subscribed to."
    )
    readers_max: int = Field(
        default=10_000, ge=1, description="Named readers of all topics whose position is kept."
    )
    take_wait_ms: int = Field(
        default=1_000, ge=0, le=20_000, description="Wait of TAKE for a message of its queue."
    )


class DrawerConfig(FrozenConfig):
    """Settings of the storage in one SQLite file."""

    stored_bytes_max: int = Field(
        default=1 << 30, ge=1 << 20, description="Bytes of all batches; above it, it is full."
    )
    append_bytes_max: int = Field(
        default=1 << 27, ge=1 << 16, description="Bytes of one atomic append."
    )
