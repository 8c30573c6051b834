"""Drawing of a report's plots on axes, in marker colours that the page's style replaces."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator

from pipeline.report.job import Figures, Traffic
from pipeline.report.texts import bytes_text, count_text, ms_text

# Each stands for a variable of the style sheet.
INK: Final = "#010101"
FAINT: Final = "#020202"
GRID: Final = "#030303"
STORED: Final = "#040404"
DECODED: Final = "#050505"
ALARM: Final = "#060606"
PROTOCOL_COLOURS: Final[Mapping[str, str]] = {
    "kafka": "#070707",
    "mqtt": "#080808",
    "sqs": "#090909",
    "amqp": "#0a0a0a",
    "rocketmq": "#0b0b0b",
}
TOPICS_SHOWN: Final = 12
_TICKS_MAX: Final = 5
_LABEL_STEP: Final = 0.075  # distance between labels, as a part of a plot's height
_BARS_APART_MAX: Final = 80  # with more bars, gaps are drawn unevenly
_ROUND: Final = (0.25, 0.5, 1, 2, 4, 5, 10, 20, 25, 50, 100, 200, 250, 500)
_DAY_MS: Final = 86_400_000


class Step(NamedTuple):
    """Traffic in one step of a plot's time."""

    unix_ms: int
    rows: list[Traffic]


def draw_records(axes: Axes, steps: Sequence[Step], step_ms: int) -> None:
    """Draw a bar of records for each step, a part for each protocol."""
    times, width = _times(steps), step_ms / _DAY_MS
    bottom = np.zeros(len(steps))
    filled = width if len(steps) > _BARS_APART_MAX else width * 0.9
    for name in _protocols(steps):
        counts = np.array([_sum(step, name, lambda row: row.records) for step in steps])
        colour = PROTOCOL_COLOURS.get(name, FAINT)
        axes.bar(times, counts, filled, bottom, align="edge", color=colour, label=name)
        bottom += counts
    _time_axis(axes, times, width)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: count_text(value)))
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    _legend(axes)


def draw_bytes(axes: Axes, steps: Sequence[Step], step_ms: int) -> None:
    """Draw the bytes of each step, decoded and as stored."""
    times, width = _times(steps), step_ms / _DAY_MS
    edges = np.append(times, times[-1] + width)
    decoded = np.array([sum(row.decoded_bytes for row in step.rows) for step in steps])
    stored = np.array([sum(row.stored_bytes for row in step.rows) for step in steps])
    axes.stairs(decoded, edges, color=DECODED, lw=1.8, label="decoded")
    axes.stairs(stored, edges, color=STORED, alpha=0.28, fill=True, lw=0)
    axes.stairs(stored, edges, color=STORED, lw=1.8, label="as stored")
    axes.set_ylim(bottom=0)
    _time_axis(axes, times, width)
    _bytes_axis(axes.yaxis, max(decoded.max(), stored.max()))
    _legend(axes)


def draw_topics(axes: Axes, rows: Sequence[Traffic]) -> None:
    """Draw the largest topics, the largest on top."""
    sums: dict[str, tuple[int, int]] = {}
    for row in rows:
        decoded, stored = sums.get(row.topic or "", (0, 0))
        sums[row.topic or ""] = decoded + row.decoded_bytes, stored + row.stored_bytes
    shown = sorted(sums.items(), key=lambda one: -one[1][0])[:TOPICS_SHOWN][::-1]
    places = np.arange(len(shown))
    for number, (label, colour) in enumerate((("decoded", DECODED), ("as stored", STORED))):
        widths = [sizes[number] for _, sizes in shown]
        axes.barh(places + 0.19 - 0.38 * number, widths, 0.34, color=colour, label=label)
    axes.set_yticks(places, [_short(name) for name, _ in shown])
    axes.tick_params(axis="y", labelcolor=INK)
    axes.grid(visible=False, axis="y")
    _bytes_axis(axes.xaxis, max((max(sizes) for _, sizes in shown), default=0))
    axes.set_ylim(-0.7, max(len(shown), 3) - 0.3)
    _legend(axes)


def draw_sizes(axes: Axes, figures: Figures) -> None:
    """Draw the number of records of each size, which doubles from bar to bar."""
    exponents = [one.exponent for one in figures.sizes]
    low, high = min(exponents), max(exponents)
    places = np.arange(low, high + 1)
    bottom = np.zeros(len(places))
    for name in sorted({one.protocol for one in figures.sizes}, key=_rank):
        counts = np.zeros(len(places))
        for one in figures.sizes:
            if one.protocol == name:
                counts[one.exponent - low] += one.records
        colour = PROTOCOL_COLOURS.get(name, FAINT)
        axes.bar(places, counts, 0.92, bottom, align="edge", color=colour, label=name)
        bottom += counts
    sizes = figures.total.size_bytes
    height = bottom.max() * 1.16
    for line, (label, value) in enumerate(zip(sizes._fields, sizes, strict=True)):
        if value:
            place = float(np.log2(value))
            axes.axvline(place, color=ALARM, lw=1.2, ls=(0, (4, 3)))
            # One below the other: they are often nearly the same.
            top = height * (0.985 - _LABEL_STEP * line)
            axes.text(place + 0.08, top, f"{label}: {bytes_text(value)}", color=ALARM, va="top")
    ticks = np.arange(low, high + 2)[:: max((len(places) + 1) // 7, 1)]
    axes.set_xticks(ticks, [_size_tick(int(one)) for one in ticks])
    axes.set_ylim(0, height)
    axes.grid(visible=False, axis="x")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: count_text(value)))
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    _legend(axes)


def draw_lateness(axes: Axes, steps: Sequence[Step]) -> None:
    """Draw the lateness of each step; the worst of several topics."""
    having = [step for step in steps if any(row.late_ms.p99 is not None for row in step.rows)]
    times = _times(having)
    for label, colour, place in (("p50", DECODED, 0), ("p99", ALARM, 2)):
        values = [
            max(row.late_ms[place] or 0 for row in step.rows if row.late_ms[place] is not None)
            for step in having
        ]
        axes.plot(times, values, color=colour, lw=1.6, marker="o", ms=2.6, label=label)
    axes.set_yscale("symlog", linthresh=1)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: ms_text(value)))
    _time_axis(axes, times, 0)
    _legend(axes)


def _times(steps: Sequence[Step]) -> npt.NDArray[np.float64]:
    moments = [datetime.fromtimestamp(step.unix_ms / 1_000, UTC) for step in steps]
    return np.array(date2num(moments))  # type: ignore[no-untyped-call]


def _time_axis(axes: Axes, times: npt.NDArray[np.float64], width: float) -> None:
    locator = AutoDateLocator(tz=UTC, minticks=3, maxticks=9)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    formatter = ConciseDateFormatter(locator, tz=UTC)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_formatter(formatter)
    margin = max((times[-1] + width - times[0]) * 0.012, 1 / 86_400)
    axes.set_xlim(times[0] - margin, times[-1] + width + margin)
    axes.grid(visible=False, axis="x")


def _bytes_axis(axis: Axis, highest_bytes: float) -> None:
    """Format an axis in bytes, with ticks at round numbers of a unit."""
    unit = 1
    while highest_bytes >= unit * 1_024:
        unit *= 1_024
    step = next(one for one in _ROUND if highest_bytes / unit / one <= _TICKS_MAX)
    axis.set_major_locator(MultipleLocator(step * unit))
    axis.set_major_formatter(FuncFormatter(lambda value, _: bytes_text(value)))


def _legend(axes: Axes) -> None:
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=6,
        borderaxespad=0.2,
        handlelength=1,
        handleheight=1,
        columnspacing=1.4,
        handletextpad=0.5,
    )


def _protocols(steps: Sequence[Step]) -> list[str]:
    return sorted({row.protocol or "" for step in steps for row in step.rows}, key=_rank)


def _rank(protocol: str) -> tuple[int, str]:
    names = list(PROTOCOL_COLOURS)
    return (names.index(protocol) if protocol in names else len(names)), protocol


def _sum(step: Step, protocol: str, of: Callable[[Traffic], int]) -> int:
    return sum(of(row) for row in step.rows if row.protocol == protocol)


def _short(name: str) -> str:
    return name if len(name) <= 22 else f"{name[:10]}…{name[-11:]}"  # noqa: PLR2004 - what fits


def _size_tick(exponent: int) -> str:
    return "0" if exponent < 0 else bytes_text(1 << exponent)
