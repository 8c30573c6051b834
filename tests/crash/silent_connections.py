"""Many connections that say nothing: they cost little, and nobody else notices."""

import resource
import socket
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from tests.support.gateway import Gateway
from tests.support.process_usage import cpu_s, resident_bytes
from tests.support.waiting import wait_until

SILENT: Final = 10_000
HANDSHAKE_S_MAX: Final = 300  # longer than all of it takes
UNHANDLED: Final = ("Traceback", "unhandled", "never retrieved", "closed by a bug")

_SILENT_BYTES_MAX: Final = 32 << 10  # for each
_CHECKS: Final = 100
_CHECKS_CPU_S_MAX: Final = 5


def check_log(gateway: Gateway, what: str) -> None:
    """See that the gateway has met no bug of its own."""
    bad = [line for line in gateway.lines if any(word in line for word in UNHANDLED)]
    assert bad == [], what


def check_silence(gateway: Gateway, port: int, check: Callable[[], None]) -> None:
    """Open connections that say nothing; ``check`` has somebody else served meanwhile."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 3 * SILENT), hard))
    check()
    before_bytes = resident_bytes(gateway.pid)
    with ExitStack() as stack:
        for _ in range(SILENT):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), 10))
        check()
        wait_until(
            lambda: gateway.metric("headgate_connections") >= SILENT,
            within_s=60,
            what="all are there",
        )
        grown_bytes = resident_bytes(gateway.pid) - before_bytes
        used_s = cpu_s(gateway.pid)
        for _ in range(_CHECKS):
            check()
        assert cpu_s(gateway.pid) - used_s < _CHECKS_CPU_S_MAX
        assert grown_bytes < SILENT * _SILENT_BYTES_MAX
    check_log(gateway, "silence")
