"""Settings of the metadata store: ``[metadata]``."""

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from gateway.config.base import FrozenConfig
from gateway.config.secret_files import read_secret
from gateway.config.secrets import SECRET_URL


class MetadataConfig(FrozenConfig):
    """Storage of topics, configs, users and rules."""

    url: str = Field(
        default="sqlite",
        min_length=1,
        description="`sqlite` (a file in data_dir) or an SQLAlchemy URL, "
        "`postgresql+psycopg://...`.",
        json_schema_extra=SECRET_URL,
    )
    url_file: Path | None = Field(
        default=None,
        description="File with the URL, in place of `url`: it holds the database's password.",
    )
    timeout_ms: int = Field(
        default=15_000,
        ge=100,
        le=600_000,
        description="Milliseconds after which a statement is cancelled and its connection closed. "
        "Requests that waited for it fail, and may be retried.",
    )
    check_ms_max: int = Field(
        default=5_000,
        ge=0,
        le=600_000,
        description="Longest check of SQLite's file at the start; 0: no check.",
    )

    @property
    def database_url(self) -> str:
        """The URL, from its file where that is set. Errors: ``InvalidSettings``."""
        if self.url_file is None:
            return self.url
        return read_secret(self.url_file, "metadata.url_file")

    @model_validator(mode="after")
    def _check_url(self) -> Self:
        if self.url_file is not None and "url" in self.model_fields_set:
            msg = "url and url_file name two databases"
            raise ValueError(msg)
        return self
