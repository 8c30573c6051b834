"""Code outside the broker calls its methods, and not its storage, writer, reader or holders.

The parts of the log itself work on them: they check appends, clean, scan and snapshot. ``main``
puts the broker together.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = {"storage", "writer", "reader", "holders"}
OF_THE_LOG = (
    "gateway/upkeep/",
    "gateway/producers.py",
    "gateway/transaction_states.py",
    "gateway/coalescer.py",
)
COMPOSES = ("gateway/main.py", "gateway/broker.py")


def reaches(source: str) -> Iterator[int]:
    """Yield the lines where a broker's part is reached for."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr in PARTS:
            owner = node.value
            name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
            if name.lstrip("_") == "broker":
                yield node.lineno


def test_only_parts_of_the_log_reach_into_the_broker() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for folder in ("gateway", "adapters", "features", "examples")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not str(path.relative_to(ROOT)).startswith((*OF_THE_LOG, *COMPOSES))
        for line in reaches(path.read_text())
    ]
    assert found == []


def test_what_reaches_into_the_broker_is_found() -> None:
    source = "kernel.broker.storage\nself._broker.writer.hold(x)\nbroker.read(y)\nself.writer\n"
    assert list(reaches(source)) == [1, 2]
