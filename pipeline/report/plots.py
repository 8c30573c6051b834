"""Plots of a report as inline SVG, which takes its colours from the page's style.

Matplotlib draws with marker colours, each of which is replaced by a variable of the style sheet:
so one drawing suits light and dark backgrounds.
"""

import io
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any, Final, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipeline.report.drawing import (
    ALARM,
    DECODED,
    FAINT,
    GRID,
    INK,
    PROTOCOL_COLOURS,
    STORED,
    Step,
    draw_bytes,
    draw_lateness,
    draw_records,
    draw_sizes,
    draw_topics,
)
from pipeline.report.job import Figures, Traffic
from pipeline.report.texts import bytes_text, is_moment, moment_text, span_text

# A drawing's colour -> the variable of the style sheet that replaces it.
_VARIABLES: Final[Mapping[str, str]] = {
    INK: "--ink",
    FAINT: "--faint",
    GRID: "--grid",
    STORED: "--stored",
    DECODED: "--decoded",
    ALARM: "--alarm",
    **{colour: f"--{name}" for name, colour in PROTOCOL_COLOURS.items()},
}
_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "headgate",
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.labelcolor": FAINT,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.major.size": 0,
    "xtick.major.pad": 6,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "legend.labelcolor": INK,
}
STEPS_MAX: Final = 240  # of time in a plot; more are combined
_WIDE: Final = (10.4, 3.3)
_HALF: Final = (5.6, 3.5)
_MINUTE_MS: Final = 60_000
_STEPS_MIN: Final = (1, 2, 5, 10, 15, 30, 60, 120, 360, 720, 1_440, 10_080, 43_200, 525_600)


class Plot(NamedTuple):
    """One drawing. ``told``: a text alternative, for screen readers."""

    name: str
    title: str
    told: str
    svg: str


def plots_of(figures: Figures) -> list[Plot]:
    """Return the plots of a report; none without records with a time."""
    steps, step_ms = steps_of(figures.by_time, figures.bucket_ms)
    if not steps:
        return []
    per = span_text(step_ms)
    found = [
        _plot(
            "records",
            f"Records per {per}",
            _records_told(figures, per),
            _WIDE,
            lambda axes: draw_records(axes, steps, step_ms),
        ),
        _plot(
            "bytes",
            f"Bytes per {per}",
            f"{bytes_text(figures.total.decoded_bytes)} of keys, values and headers are stored in "
            f"{bytes_text(figures.total.stored_bytes)} of batches.",
            _WIDE,
            lambda axes: draw_bytes(axes, steps, step_ms),
        ),
        _plot(
            "topics",
            "Topics by bytes",
            "The topics with the most bytes, as decoded and as stored.",
            _HALF,
            lambda axes: draw_topics(axes, figures.by_topic),
        ),
        _plot(
            "sizes",
            "Sizes of records",
            _sizes_told(figures.total),
            _HALF,
            lambda axes: draw_sizes(axes, figures),
        ),
    ]
    if figures.total.late_ms.p99:
        found.append(
            _plot(
                "lateness",
                f"Lateness per {per}",
                f"Half of all records are at most {figures.total.late_ms.p50} ms late, all but 1 % "
                f"at most {figures.total.late_ms.p99} ms.",
                _WIDE,
                lambda axes: draw_lateness(axes, steps),
            )
        )
    return found


def steps_of(rows: Sequence[Traffic], bucket_ms: int) -> tuple[list[Step], int]:
    """Return the steps of equal length, empty ones included, and their length.

    Records with an implausible time (before 1970, after 9999) are in none of them.
    """
    times = [row.unix_ms for row in rows if is_moment(row.unix_ms)]
    if not times:
        return [], bucket_ms
    span_ms = max(times) - min(times) + bucket_ms
    wanted_ms = [max(one * _MINUTE_MS, bucket_ms) for one in _STEPS_MIN]
    step_ms = next((one for one in wanted_ms if span_ms / one <= STEPS_MAX), span_ms)
    first = min(times) // step_ms * step_ms
    count = (max(times) - first) // step_ms + 1
    steps = [Step(first + number * step_ms, []) for number in range(count)]
    for row in rows:
        if is_moment(row.unix_ms):
            steps[(row.unix_ms - first) // step_ms].rows.append(row)
    return steps, step_ms


def _plot(
    name: str, title: str, told: str, size: tuple[float, float], draw: Callable[[Axes], None]
) -> Plot:
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=size, layout="constrained")
        figure.patch.set_alpha(0)
        axes = figure.add_subplot()
        axes.patch.set_alpha(0)
        draw(axes)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return Plot(name, title, told, _inline(out.getvalue(), name, title, told))


def _inline(svg: str, name: str, title: str, told: str) -> str:
    """Return a drawing as an element of a page, with a title and unique ids."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{name}-", body)
    for colour, variable in _VARIABLES.items():
        body = body.replace(colour, f"var({variable})")
    body = re.sub(r'<svg [^>]*?viewBox="([^"]*)"[^>]*>', _opening(name, r"\1"), body, count=1)
    heading = f'<title id="{name}-title">{escape(title)}</title>'
    heading += f'<desc id="{name}-desc">{escape(told)}</desc>'
    return body.replace("<defs>", f"{heading}<defs>", 1)


def _opening(name: str, view_box: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'role="img" aria-labelledby="{name}-title {name}-desc" viewBox="{view_box}">'
    )


def _records_told(figures: Figures, per: str) -> str:
    total = figures.total
    timed = [row for row in figures.by_time if is_moment(row.unix_ms)]
    busiest = max(timed, key=lambda row: row.records)
    return (
        f"{total.records:,} records in all; the busiest was {busiest.topic} with "
        f"{busiest.records:,} at {moment_text(busiest.unix_ms or 0)}. One bar is one {per}."
    )


def _sizes_told(total: Traffic) -> str:
    sizes = total.size_bytes
    return (
        f"Half of all records have at most {bytes_text(sizes.p50 or 0)}, 95 % at most "
        f"{bytes_text(sizes.p95 or 0)}, 99 % at most {bytes_text(sizes.p99 or 0)}; the largest has "
        f"{bytes_text(total.size_bytes_max)}."
    )
