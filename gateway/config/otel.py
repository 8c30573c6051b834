"""Settings of traces: ``[otel]``."""

from pathlib import Path

from pydantic import Field, field_validator

from gateway.config.base import FrozenConfig


class OtelConfig(FrozenConfig):
    """Spans of messages whose `traceparent` is sampled, sent to an OTLP receiver over HTTP."""

    endpoint: str = Field(
        default="",
        description="URL of the receiver, such as `http://127.0.0.1:4318/v1/traces`. Empty: no "
        "traces. Needs the extra `otel`.",
    )
    authorization_file: Path | None = Field(
        default=None,
        description="File with the value of the header `Authorization` for the receiver.",
    )
    service_name: str = Field(
        default="headgate",
        min_length=1,
        max_length=200,
        description="`service.name` of the spans.",
    )
    spans_queued_max: int = Field(
        default=4_096,
        ge=1,
        le=1_000_000,
        description="Spans that wait to be sent; more are dropped and counted.",
    )
    messages_remembered_max: int = Field(
        default=10_000,
        ge=1,
        le=1_000_000,
        description="Sampled messages remembered since the start, so that their receives have "
        "spans; the oldest are forgotten.",
    )
    timeout_ms: int = Field(
        default=5_000,
        ge=1,
        le=60_000,
        description="Milliseconds for one request to the receiver; then its spans are dropped.",
    )

    @field_validator("endpoint")
    @classmethod
    def _check_endpoint(cls, url: str) -> str:
        if url and not url.startswith(("http://", "https://")):
            msg = "must begin with http:// or https://"
            raise ValueError(msg)
        return url
