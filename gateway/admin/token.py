"""Token and address of the admin endpoint, in files of the data directory.

Whoever may read what the data directory's owner may read can administer the node: the token has
mode 0600.
"""

import os
import secrets
from pathlib import Path
from typing import Final

TOKEN_FILE: Final = "admin.token"  # noqa: S105 - a file name
URL_FILE: Final = "admin.url"
_TOKEN_BYTES: Final = 32


def ensure_token(data_dir: Path) -> str:
    """Return the node's admin token, generated if missing. Errors: ``OSError``."""
    try:
        return read_token(data_dir)
    except FileNotFoundError:
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        _write_private(data_dir / TOKEN_FILE, token)
        return token


def read_token(data_dir: Path) -> str:
    """Return the token. Errors: ``OSError``, ``FileNotFoundError`` before the first start."""
    token = (data_dir / TOKEN_FILE).read_text("ascii").strip()
    if not token:
        # What a full disk left behind; an empty token would let everybody in.
        raise FileNotFoundError(data_dir / TOKEN_FILE)
    return token


def write_url(data_dir: Path, url: str) -> None:
    """Write the listening address for commands; it has the real port in place of 0."""
    _write_private(data_dir / URL_FILE, url)


def read_url(data_dir: Path) -> str | None:
    """Return the address that the running node wrote, or None."""
    try:
        return (data_dir / URL_FILE).read_text("ascii").strip() or None
    except FileNotFoundError:
        return None


def remove_url(data_dir: Path) -> None:
    """Remove the address of a stopped node."""
    (data_dir / URL_FILE).unlink(missing_ok=True)


def _write_private(path: Path, text: str) -> None:
    """Replace a file at once: a reader sees the old or the new text, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f"{path.suffix}.new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text + "\n")
    temporary.replace(path)
