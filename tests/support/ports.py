"""Free TCP ports of 127.0.0.1 that stay free until a server is started, and started again."""

import random
import socket
from typing import Final

# Below the range from which the system takes ports for outgoing connections: nobody slips in
# between a kill and the restart.
_PORTS: Final = range(15_000, 32_000)
_TRIES_MAX: Final = 100


def free_port() -> int:
    """Return a port nobody listens on."""
    chooser = random.SystemRandom()
    for _ in range(_TRIES_MAX):
        port = chooser.choice(_PORTS)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    msg = f"no free port in {_TRIES_MAX} tries"
    raise OSError(msg)
