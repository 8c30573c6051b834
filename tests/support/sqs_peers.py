"""Other servers that speak SQS, for suites and benchmarks: moto from PyPI and ElasticMQ from Maven.

Both keep everything in memory. They are what a gateway is compared with, not what is right: what
they do not do as Amazon documents it is listed in ``tests/support/sqs_target.py``.
"""

import contextlib
import http.client
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.testing.ports import free_port
from gateway.testing.process import Program, ProgramFailed
from tests.support.sqs_toolchain import elasticmq_jars, moto_server
from tests.support.toolchain import need
from tests.support.waiting import wait_until

MOTO_ACCOUNT: Final = "123456789012"
ELASTICMQ_ACCOUNT: Final = "000000000000"
HEAP_MIB: Final = 512  # of ElasticMQ, unless told otherwise
_READY_S_MAX: Final = 180.0
_CONF: Final = """\
node-address {{ protocol = http, host = "127.0.0.1", port = {port}, context-path = "" }}
rest-sqs {{
  enabled = true, bind-port = {port}, bind-hostname = "127.0.0.1", sqs-limits = strict
}}
rest-stats {{ enabled = false }}
aws {{ region = us-east-1, accountId = "{account}" }}
"""


@dataclass(frozen=True)
class Peer:
    """A peer that runs on 127.0.0.1."""

    url: str
    account: str
    program: Program


@contextlib.contextmanager
def moto(folder: Path) -> Iterator[Peer]:
    """Run moto's server until the block ends. ``folder`` is where nothing disturbs it."""
    port = free_port()
    command = [*moto_server(), "-H", "127.0.0.1", "-p", str(port)]
    with _running(command, port, MOTO_ACCOUNT, folder) as peer:
        yield peer


@contextlib.contextmanager
def elasticmq(folder: Path, *, heap_mib: int = HEAP_MIB) -> Iterator[Peer]:
    """Run ElasticMQ until the block ends; its settings are written to ``folder``."""
    need("java", "mvn")
    port = free_port()
    conf = folder / "elasticmq.conf"
    conf.write_text(_CONF.format(port=port, account=ELASTICMQ_ACCOUNT))
    command = [
        "java", f"-Xmx{heap_mib}m", f"-Dconfig.file={conf}", "-cp", f"{elasticmq_jars()}/*",
        "org.elasticmq.server.Main",
    ]  # fmt: skip
    with _running(command, port, ELASTICMQ_ACCOUNT, folder) as peer:
        yield peer


@contextlib.contextmanager
def _running(command: Sequence[str], port: int, account: str, folder: Path) -> Iterator[Peer]:
    program = Program(command, cwd=folder)
    try:
        wait_until(
            lambda: not program.is_running or _answers(port),
            within_s=_READY_S_MAX,
            what=f"{command[0]} answers",
        )
        if not program.is_running:
            msg = f"{command[:4]} ended\n{program.tail()}"
            raise ProgramFailed(msg)
        yield Peer(f"http://127.0.0.1:{port}", account, program)
    finally:
        program.kill()  # there is nothing that it would keep


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/?Action=ListQueues&Version=2012-11-05")
        connection.getresponse().read()
    except OSError:
        return False
    else:
        return True
    finally:
        connection.close()
