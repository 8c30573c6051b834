"""The outcome of the SQS benchmarks: as any other, with the versions of what takes part."""

import re
from dataclasses import dataclass
from importlib.metadata import version
from typing import Final

from benchmarks.report import Report, interpreter
from tests.support.sqs_peers import HEAP_MIB
from tests.support.toolchain import ROOT

_SUITE: Final = ROOT / "tests/interop/sqs"


@dataclass(frozen=True)
class SqsReport(Report):
    """A benchmark's outcome."""

    def versions(self) -> dict[str, str]:
        """Return the versions of everything that takes part."""
        return {
            "headgate": version("headgate"),
            "python": interpreter(),
            "uvloop": version("uvloop"),
            "elasticmq": _said(
                "elasticmq/pom.xml", r"elasticmq-server_2.13</artifactId>\s*<version>([^<]+)"
            )
            + f" (-Xmx{HEAP_MIB}m)",
            "moto": _said("tools/moto.lock", r"(?m)^moto==(\S+)"),
        }


def _said(path: str, pattern: str) -> str:
    """Return the version that a file of the suite pins."""
    found = re.search(pattern, (_SUITE / path).read_text())
    assert found is not None, path
    return found.group(1)
