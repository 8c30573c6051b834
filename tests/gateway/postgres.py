"""A PostgreSQL of the tests' own: a fresh data folder, a free port, gone afterwards."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.testing.ports import free_port

_UNPRIVILEGED = ("postgres", "nobody")  # PostgreSQL refuses to run as root


def missing() -> str | None:
    """Return why no server can be started here, or None."""
    for program in ("initdb", "postgres"):
        if shutil.which(program) is None:
            return f"{program} is missing: install postgresql"
    try:
        import psycopg  # noqa: F401 - only whether it is there
    except ImportError:
        return "psycopg is missing: install headgate[postgres]"
    return None


@contextmanager
def running_postgres() -> Iterator[str]:
    """Start a server and yield its SQLAlchemy URL."""
    user = _user()
    folder = Path(tempfile.mkdtemp(prefix="headgate-postgres-"))
    if user is not None:
        shutil.chown(folder, user)
    data = folder / "data"
    port = free_port()
    initdb = ["initdb", "-D", str(data), "-U", "headgate", "-A", "trust", "--no-sync"]
    options = ["-c", "fsync=off", "-c", f"unix_socket_directories={folder}"]
    postgres = ["postgres", "-D", str(data), "-h", "127.0.0.1", "-p", str(port), *options]
    server = None
    try:
        subprocess.run(
            initdb, check=True, cwd=folder, user=user, capture_output=True, timeout=120
        )
        server = subprocess.Popen(
            postgres, cwd=folder, user=user, stderr=subprocess.PIPE, text=True
        )
        assert server.stderr is not None
        for line in server.stderr:
            if "ready to accept connections" in line:
                break
        yield f"postgresql+psycopg://headgate@127.0.0.1:{port}/postgres"
    finally:
        if server is not None:
            server.terminate()
            server.communicate(timeout=60)
        shutil.rmtree(folder)


def _user() -> str | None:
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in _UNPRIVILEGED if name in known)
