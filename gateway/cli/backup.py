"""``headgate backup`` of a running node, and ``headgate restore`` into an empty folder."""

import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from gateway.backup.restore import restore as restore_backup
from gateway.cli import options
from gateway.cli.admin_client import Refused
from gateway.cli.output import print_json, say
from gateway.cli.settings import client_of, settings_of
from gateway.errors import StorageUnavailable
from gateway.private_files import make_data_dir
from storage_adapters.segment_log.lockfile import DataLock

_MIB: Final = 1_048_576


def backup(
    folder: Annotated[
        Path, typer.Argument(help="A new or empty folder on the node's machine.")
    ],
    *,
    as_json: options.AsJson = False,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Back a running node up: files are linked, so on its own disk it takes little space."""
    client = client_of(settings_of(config, assignments))
    found = client.send("POST", "backup", body={"target": str(folder.absolute())})
    while found["state"] == "running":
        found = client.get("backup", query={"wait": "true"})
        _show_progress(found["checked_bytes"], found["total_bytes"])
    if found["state"] != "done":
        raise Refused(f"the backup failed: {found['error']}")
    if as_json:
        print_json(found)
        return
    say(f"backed up {found['files']} file(s), {_mib(found['total_bytes'])}, into {folder}")


def restore(
    folder: Annotated[Path, typer.Argument(help="The backup.", exists=True, file_okay=False)],
    data_dir: Annotated[Path, typer.Argument(help="A new or empty data_dir.")],
    *,
    as_json: options.AsJson = False,
) -> None:
    """Check a backup and put it into a new data directory."""
    copied = 0

    def on_copied(size_bytes: int) -> None:
        nonlocal copied
        before, copied = copied, copied + size_bytes
        if before // (64 * _MIB) != copied // (64 * _MIB):
            _show_progress(copied, None)

    try:
        make_data_dir(data_dir)
        lock = DataLock(data_dir)
        lock.acquire()
        try:
            content = restore_backup(folder, data_dir, on_copied=on_copied)
        finally:
            lock.release()
    except OSError as error:
        raise StorageUnavailable(f"{data_dir}: {error}") from error
    found: dict[str, Any] = {
        "data_dir": str(data_dir),
        "files": len(content.files),
        "total_bytes": content.size_bytes,
        "metadata": content.metadata,
        "created_unix_ms": content.created_unix_ms,
    }
    if as_json:
        print_json(found)
        return
    say(f"restored {found['files']} file(s), {_mib(content.size_bytes)}, into {data_dir}")
    if content.metadata != "sqlite":
        say("the metadata was in a database elsewhere: restore that too, of the same time")


def _show_progress(done_bytes: int, total_bytes: int | None) -> None:
    if sys.stderr.isatty():
        total = "" if total_bytes is None else f" of {_mib(total_bytes)}"
        sys.stderr.write(f"\r{_mib(done_bytes)}{total} ")


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / _MIB:,.1f} MiB"
