"""Output of a benchmark: a table on the screen and a JSON file."""

import json
import platform
import statistics
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from tests.support.kafka_server import VERSION as KAFKA_VERSION
from tests.support.toolchain import ROOT

RESULTS: Final = ROOT / "benchmarks/results"


@dataclass(frozen=True)
class Sample:
    """One run's figure and what else was seen in it."""

    value: float
    extra: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """All runs of one side at one setting."""

    case: str
    side: str
    policy: str
    unit: str
    samples: Sequence[Sample]

    @property
    def median(self) -> float:
        """The middle of the runs."""
        return statistics.median(sample.value for sample in self.samples)

    def besides(self, name: str) -> float | None:
        """Return the median of something else that was seen, None when it was not."""
        found = [sample.extra[name] for sample in self.samples if name in sample.extra]
        return statistics.median(found) if found else None

    def to_json(self) -> dict[str, Any]:
        """Return the row with its median, spread and every run."""
        values = [sample.value for sample in self.samples]
        names = sorted({name for sample in self.samples for name in sample.extra})
        return {
            "case": self.case,
            "side": self.side,
            "policy": self.policy,
            "unit": self.unit,
            "median": self.median,
            "lowest": min(values),
            "highest": max(values),
            "runs": values,
            "extra": {name: self.besides(name) for name in names},
        }


@dataclass(frozen=True)
class Ratio:
    """Ours by the peer's, and the bar it is held against. ``at_most``: smaller is better."""

    case: str
    value: float
    bar: float
    at_most: bool = False

    @property
    def is_met(self) -> bool:
        """The bar is reached."""
        return self.value <= self.bar if self.at_most else self.value >= self.bar


@dataclass(frozen=True)
class Report:
    """A benchmark's outcome."""

    name: str
    title: str
    rows: Sequence[Row]
    ratios: Sequence[Ratio]
    notes: Sequence[str] = ()
    profile: Sequence[Mapping[str, Any]] = ()

    def versions(self) -> dict[str, str]:
        """Return the versions of everything that takes part."""
        return kafka_versions()

    def publish(self) -> None:
        """Print the table and write the JSON file."""
        sys.stdout.write("\n".join([*self._lines(), ""]))
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"{self.name}.json"
        path.write_text(json.dumps(self._json(), indent=2) + "\n")

    def _lines(self) -> list[str]:
        lines = [f"\n{self.name}: {self.title}", f"  {command()}"]
        for row in self.rows:
            values = [sample.value for sample in row.samples]
            extras = "  ".join(
                f"{name} {number(value)}" for name, value in row.to_json()["extra"].items()
            )
            lines.append(
                f"  {row.case:<28} {row.side:<9} {row.policy:<26} {number(row.median):>10} "
                f"{row.unit:<10} ({number(min(values))} to {number(max(values))})  {extras}"
            )
        for ratio in self.ratios:
            sign, word = ("<=", "at most") if ratio.at_most else (">=", "at least")
            met = "met" if ratio.is_met else f"SHORT of {sign} {ratio.bar}"
            lines.append(f"  {ratio.case}: {ratio.value:.2f} ({word} {ratio.bar}: {met})")
        said = ", ".join(f"{name} {what}" for name, what in self.versions().items())
        return [*lines, *(f"  {note}" for note in self.notes), f"  {said}"]

    def _json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title,
            "command": command(),
            "date": time.strftime("%Y-%m-%d"),
            "commit": commit(),
            "machine": machine(),
            "versions": self.versions(),
            "rows": [row.to_json() for row in self.rows],
            "ratios": [{**asdict(ratio), "is_met": ratio.is_met} for ratio in self.ratios],
            "notes": list(self.notes),
            "profile": list(self.profile),
        }


def number(value: float) -> str:
    """Return a figure with three digits that matter, thousands set apart."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def command() -> str:
    """Return the command that was run, as it can be run again."""
    return " ".join(["python -m benchmarks", *sys.argv[1:]])


def commit() -> str:
    """Return the commit that was measured, with a plus sign where files differ from it."""
    found = [
        subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
        for words in (
            ["rev-parse", "--short=7", "HEAD"],
            [
                "status",
                "--porcelain",
                "--untracked-files=no",
                "--",
                ".",
                ":!benchmarks/results",
            ],
        )
    ]
    if any(one.returncode for one in found):
        return "unknown"
    return found[0].stdout.strip() + ("+" if found[1].stdout else "")


def machine() -> dict[str, Any]:
    """Return what it ran on."""
    cpu_lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = {line.split(":", 1)[1].strip() for line in cpu_lines if "model name" in line}
    memory_kb = int(Path("/proc/meminfo").read_text().split()[1])
    return {
        "processors": sum("processor\t" in line for line in cpu_lines),
        "model": ", ".join(sorted(models)),
        "memory_gib": round(memory_kb / 2**20, 1),
        "system": f"{platform.system()} {platform.release()}",
    }


def interpreter() -> str:
    """Return the Python's version and whose build it is.

    Ours is interpreted, so the build counts: profile-guided optimization makes M4 an eighth faster.
    """
    if sys.base_prefix == "/usr":
        built = "the distribution's"
    elif "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or ""):
        built = "built with --enable-optimizations"
    else:
        built = "built without --enable-optimizations"
    return f"{platform.python_version()} ({built})"


def kafka_versions() -> dict[str, str]:
    """Return the versions of ours and of what Kafka's side takes."""
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    return {
        "headgate": version("headgate"),
        "python": interpreter(),
        "uvloop": version("uvloop"),
        "kafka": KAFKA_VERSION,
        "java": java.stderr.splitlines()[0] if java.stderr else "-",
        "confluent-kafka": version("confluent-kafka"),
    }
