"""Permissions of the data directory and its files: the node's user only."""

import os
import stat
from pathlib import Path
from typing import Final

import structlog

DIRECTORY_MODE: Final = 0o700
_OTHERS: Final = 0o007

log = structlog.get_logger()


def make_files_private() -> None:
    """Set the umask so that new files are not accessible to all users."""
    os.umask(os.umask(_OTHERS) | _OTHERS)


def make_data_dir(path: Path) -> None:
    """Create a private data directory, or make an existing one private.

    A group that an operator has let in stays: jobs that read the log may run as another user.
    Errors: ``OSError``.
    """
    make_files_private()
    try:
        path.mkdir(parents=True, mode=DIRECTORY_MODE)
    except FileExistsError:
        mode = stat.S_IMODE(path.stat().st_mode)
        if not mode & _OTHERS:
            return
        try:
            path.chmod(mode & ~_OTHERS)
        except PermissionError:
            log.warning("the data directory is accessible to all users", path=str(path))
            return
        log.warning(
            "the data directory was accessible to all users and is private now", path=str(path)
        )
