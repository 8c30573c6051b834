"""Settings of log lines: ``[log]``."""

from typing import Literal

from pydantic import Field

from gateway.config.base import FrozenConfig


class LogConfig(FrozenConfig):
    """Log lines on standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lowest level that is written."
    )
    format: Literal["console", "json"] = Field(
        default="console", description="`console` for people, `json` for collectors."
    )
    refusals_per_s_max: int = Field(
        default=10,
        ge=1,
        le=10_000,
        description="Lines per second about refused logins and refused changes; the next line has "
        "the number left out.",
    )
