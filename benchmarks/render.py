"""docs/benchmarks.md, made from the JSON files of benchmarks/results and from nothing else."""

import json
from collections.abc import Iterator
from typing import Any, Final

from benchmarks.report import RESULTS, number
from tests.support.toolchain import ROOT

PAGE: Final = ROOT / "docs/benchmarks.md"
_HEAD: Final = """\
# Benchmarks

Made from `benchmarks/results/*.json` by `python -m benchmarks render`; measure anew with
`make bench`. Every figure stands beside its peer (Kafka, Mosquitto, ElasticMQ, RabbitMQ) in the
same run on the same machine, the sides taking turns, client and server sharing the machine. Figures
are medians; the spread (lowest to highest run) is beside them. Machines differ: read the ratios.

Two commands compare Headgate with itself, the sides in turn: `python -m benchmarks compare --before
CHECKOUT` another build, and `python -m benchmarks shards` a node of 64 shards with one of 1.

The last line of a figure names the commit that was measured. Figures taken before 2026-11-24 name
the commit that published them, one or a few behind the code that ran.

Builds of Python differ, too, and the last line of a figure names whose it was where that is
known: `make clean`, then `make PYTHON=/usr/bin/python3 bench` measures with the distribution's. One
built without `--enable-optimizations` (pyenv's default) costs a tenth to an eighth of M4's rate.
"""


def render() -> None:
    """Write the page."""
    reports = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text("\n".join([_HEAD, *(line for one in reports for line in _section(one))]))


def _section(report: dict[str, Any]) -> Iterator[str]:
    yield f"## {report['name'].upper()}: {report['title']}"
    yield ""
    yield "| case | side | durability | median | spread | besides |"
    yield "|---|---|---|---|---|---|"
    for row in report["rows"]:
        besides = ", ".join(f"{name} {number(what)}" for name, what in row["extra"].items())
        yield (
            f"| {row['case']} | {row['side']} | {row['policy']} "
            f"| {number(row['median'])} {row['unit']} "
            f"| {number(row['lowest'])} to {number(row['highest'])} | {besides} |"
        )
    yield ""
    for ratio in report["ratios"]:
        word = "at most" if ratio["at_most"] else "at least"
        met = "met" if ratio["is_met"] else "**not met**"
        yield f"- {ratio['case']}: **{ratio['value']:.2f}** (bar: {word} {ratio['bar']}, {met})"
    yield from (f"- {note}" for note in report["notes"])
    yield ""
    yield from _profile(report.get("profile", []))
    when = f"on {report['date']} at commit {report['commit']}"
    yield f"`{report['command']}` {when}; {_machine(report)}"
    yield ""


def _profile(rows: list[dict[str, Any]]) -> Iterator[str]:
    if rows:
        yield "| share of samples | function |"
        yield "|---|---|"
        yield from (f"| {row['share']:.1%} | `{row['where']}` |" for row in rows)
        yield ""


def _machine(report: dict[str, Any]) -> str:
    machine = report["machine"]
    parts = ", ".join(f"{name} {what}" for name, what in report["versions"].items())
    return (
        f"{machine['processors']} processors ({machine['model']}), "
        f"{machine['memory_gib']} GiB, {machine['system']}; {parts}"
    )
