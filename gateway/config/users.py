"""Users declared in the config file: ``[[users]]`` and ``[[users.keys]]``."""

import re
from pathlib import Path
from typing import Final, Self

from pydantic import Field, field_validator, model_validator

from gateway.config.base import FrozenConfig
from gateway.config.secrets import SECRET

_VERIFIER: Final = re.compile(
    r"SCRAM-SHA-(?:256|512)\$[1-9][0-9]{3,6}:[A-Za-z0-9+/=]+\$[A-Za-z0-9+/=]+:[A-Za-z0-9+/=]+"
)


class DeclaredKey(FrozenConfig):
    """An access key of a declared user, for protocols that sign requests, as SQS does."""

    key_id: str = Field(min_length=1, max_length=128, description="The key's id.")
    secret_file: Path = Field(description="File with the secret.")
    account: str = Field(default="", description="12 digits; empty: the default account.")


class DeclaredUser(FrozenConfig):
    """A user, beside those of the metadata store; of two with one name this one counts.

    One with neither `password_file` nor `scram` shows who it is by its keys or by a client
    certificate.
    """

    name: str = Field(min_length=1, max_length=255, description="The user's name.")
    password_file: Path | None = Field(default=None, description="File with the password.")
    scram: tuple[str, ...] = Field(
        default=(),
        description="Instead, verifiers as `headgate users verifier` prints them: "
        "`SCRAM-SHA-256$600000:salt$StoredKey:ServerKey`, one for each mechanism.",
        json_schema_extra=SECRET,
    )
    keys: tuple[DeclaredKey, ...] = Field(default=(), description="Its access keys.")

    @field_validator("scram")
    @classmethod
    def _check_verifiers(cls, verifiers: tuple[str, ...]) -> tuple[str, ...]:
        if not all(_VERIFIER.fullmatch(text) for text in verifiers):
            msg = "a verifier is not as `headgate users verifier` prints them"
            raise ValueError(msg)
        if len({text.partition("$")[0] for text in verifiers}) < len(verifiers):
            msg = "there are two verifiers of one mechanism"
            raise ValueError(msg)
        return verifiers

    @model_validator(mode="after")
    def _check_password(self) -> Self:
        if self.password_file is not None and self.scram:
            msg = "password_file and scram are two passwords of one user"
            raise ValueError(msg)
        return self
