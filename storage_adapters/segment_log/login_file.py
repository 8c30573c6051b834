"""The file in a data directory that says that everybody must log in."""

import asyncio
from pathlib import Path
from typing import Final

from gateway.errors import StorageUnavailable
from storage_adapters.segment_log.files import Files

FILE_NAME: Final = "login_required"


def is_login_required(data_dir: Path) -> bool:
    """Say whether everybody had to log in when the node ran last."""
    return (data_dir / FILE_NAME).exists()


class LoginFile:
    """The file of a data directory, as a running node keeps it."""

    def __init__(self, files: Files, data_dir: Path) -> None:
        self._files = files
        self._path = data_dir / FILE_NAME

    async def keep(self, *, required: bool) -> None:
        """See ``LoginStorage``: make or remove the file."""
        await asyncio.to_thread(self._keep, is_required=required)

    def _keep(self, *, is_required: bool) -> None:
        path = self._path
        try:
            if is_required is path.exists():
                return
            if is_required:
                path.touch()
            else:
                path.unlink()
            self._files.sync_directory(path.parent)
        except OSError as error:
            raise StorageUnavailable(f"{path}: {error}") from error
