"""Free TCP ports of 127.0.0.1 that stay free until a server is started, and started again."""

import fcntl
import os
import random
import socket
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

# Below the range from which the system takes ports for outgoing connections: nobody slips in
# between a kill and the restart.
_PORTS: Final = range(15_000, 32_000)
_TRIES_MAX: Final = 100
_TAKEN: Final[set[int]] = set()


def free_port() -> int:
    """Return a port nobody listens on, and that no test of this machine has been given.

    It is kept until this process ends: nobody listens yet, or while a server is restarted.
    """
    chooser = random.SystemRandom()
    for _ in range(_TRIES_MAX):
        port = chooser.choice(_PORTS)
        if port not in _TAKEN and _is_ours(port):
            _TAKEN.add(port)
            if _is_free(port):
                return port
    msg = f"no free port in {_TRIES_MAX} tries"
    raise OSError(msg)


def _is_ours(port: int) -> bool:
    """Take the byte that stands for the port in a file that all tests of the machine lock."""
    try:
        fcntl.lockf(_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


@cache
def _locks() -> int:
    # To close it, or another of the same file, would end all locks of this process.
    path = Path(tempfile.gettempdir()) / f"headgate-test-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
