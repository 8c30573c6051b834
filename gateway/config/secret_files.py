"""Secrets in files of their own, as container platforms mount them."""

from pathlib import Path
from typing import Final

from gateway.config.base import InvalidSettings

SECRET_BYTES_MAX: Final = 8_192


def read_secret(file: Path, key: str) -> str:
    """Return what a file holds, without a line break at its end.

    ``key`` is the config key that names the file. Errors: ``InvalidSettings``.
    """
    try:
        with file.open("rb") as opened:
            content = opened.read(SECRET_BYTES_MAX + 1)
        text = content.decode().rstrip("\r\n")
    except OSError as error:
        raise InvalidSettings(f"{key}: {file}: {error.strerror or error}") from error
    except UnicodeDecodeError:
        raise InvalidSettings(f"{key}: {file}: is not UTF-8 text") from None
    if not text:
        raise InvalidSettings(f"{key}: {file}: is empty")
    if len(content) > SECRET_BYTES_MAX:
        raise InvalidSettings(f"{key}: {file}: has more than {SECRET_BYTES_MAX} bytes")
    return text
