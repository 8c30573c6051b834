"""Report as one self-contained HTML page, without network or script."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from pipeline.report.job import Figures, Percentiles, Traffic
from pipeline.report.plots import Plot, plots_of, steps_of
from pipeline.report.texts import bytes_text, is_moment, moment_text, ms_text, span_text

STEPS_LISTED_MAX: Final = 240

_CSS: Final = """
:root { color-scheme: light dark;
  --ground: #f6f7f9; --card: #ffffff; --ink: #1b2430; --faint: #5d6a7a; --grid: #e3e7ec;
  --line: #dfe4ea; --accent: #2563c9; --stored: #7c5cd6; --decoded: #2563c9; --alarm: #c2410c;
  --kafka: #2f6fdb; --mqtt: #12957f; --sqs: #d98a10; --amqp: #9a4fc4; --rocketmq: #cf4a6a; }
@media (prefers-color-scheme: dark) { :root {
  --ground: #10151c; --card: #18202a; --ink: #e6ebf2; --faint: #97a5b6; --grid: #2a3441;
  --line: #2a3441; --accent: #7aaeff; --stored: #b09cff; --decoded: #74a9ff; --alarm: #ff9a62;
  --kafka: #6ea3ff; --mqtt: #3ecbb0; --sqs: #f2b24c; --amqp: #c893ea; --rocketmq: #f28aa3; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 1140px; margin: 0 auto; padding: 36px 20px 64px; }
h1 { font-size: 26px; line-height: 1.2; margin: 0 0 4px; letter-spacing: -0.01em; }
h2 { font-size: 17px; margin: 0 0 2px; }
p { margin: 0; } .told { color: var(--faint); max-width: 76ch; }
.cards { display: flex; flex-wrap: wrap; gap: 12px; margin: 24px 0 14px; padding: 0; }
.card, figure, section { background: var(--card); border: 1px solid var(--line);
  border-radius: 12px; }
.card { flex: 1 1 140px; padding: 14px 15px; } .card dt { color: var(--faint); font-size: 13px; }
.card dd { margin: 2px 0 0; font-size: 23px; font-weight: 650; letter-spacing: -0.01em;
  font-variant-numeric: tabular-nums; }
.card small { display: block; font-size: 12.5px; font-weight: 400; color: var(--faint);
  letter-spacing: 0; }
.plots { display: grid; gap: 14px; grid-template-columns: repeat(2, minmax(0, 1fr)); }
figure { margin: 0; padding: 16px 18px 12px; } figure.wide { grid-column: span 2; }
figcaption { margin-bottom: 8px; } figcaption p { color: var(--faint); font-size: 13.5px; }
svg { display: block; width: 100%; height: auto; }
section { margin-top: 14px; padding: 16px 18px; }
.scroll { overflow-x: auto; margin-top: 10px; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px;
  font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; color: var(--faint); vertical-align: bottom; }
th, td { padding: 6px 0 6px 14px; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { padding-left: 0; }
td { vertical-align: top; white-space: nowrap; } th.n, td.n { text-align: right; }
tr:last-child td { border-bottom: 0; }
td:first-child { white-space: normal; overflow-wrap: anywhere; min-width: 130px; }
.dot { display: inline-block; width: 9px; height: 9px; border-radius: 3px; margin-right: 7px;
  background: var(--faint); }
summary { cursor: pointer; font-weight: 600; } footer { color: var(--faint); font-size: 13px;
  margin-top: 22px; } .alarm { color: var(--alarm); font-weight: 600; }
@media (max-width: 760px) { .plots { grid-template-columns: minmax(0, 1fr); }
  figure.wide { grid-column: span 1; } }
@media print { body { background: none; } details:not([open]) { display: none; } }
"""
_HALVES: Final = {"topics", "sizes"}
_DOTS: Final = ("kafka", "mqtt", "sqs", "amqp", "rocketmq")
_NONE: Final = "\N{EN DASH}"

_ABOUT_TIMES: Final = (
    "The log does not keep when a record was appended. <b>Late</b> is how far a record's time lies "
    "behind that of another one before it: at least so long it took, by the producers' clocks. "
    "<b>Overdue</b> is from a delayed message's due time to its append, where the topic's times "
    "are those of the append."
)

Cell = tuple[str, bool]  # HTML, and whether it is a number


def page_of(figures: Figures, *, source: str, made_unix_ms: int) -> str:
    """Return the page. ``source``: place of the log; ``made_unix_ms``: time of the report."""
    plots = plots_of(figures)
    parts = [
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        "<title>Traffic report · Headgate</title>",
        f"<style>{_CSS}</style></head><body><main>",
        f"<header><h1>Traffic report</h1>{_subtitle(figures, source)}</header>",
        _cards(figures),
        f'<div class="plots">{"".join(map(_figure, plots))}</div>',
        _topics(figures.by_topic),
        _times(figures),
        _notes(figures, made_unix_ms),
        "</main></body></html>\n",
    ]
    return "\n".join(parts)


def _subtitle(figures: Figures, source: str) -> str:
    times = [row.unix_ms for row in figures.by_time if is_moment(row.unix_ms)]
    where = f"of the log in {escape(source)}"
    if not times:
        return f'<p class="told">{where}: there are no records that have a time.</p>'
    first, end = moment_text(min(times)), moment_text(max(times) + figures.bucket_ms)
    return f'<p class="told">{where}, records of {first} to {end}.</p>'


def _cards(figures: Figures) -> str:
    total = figures.total
    share = total.stored_bytes / total.decoded_bytes if total.decoded_bytes else 0.0
    topics = {row.topic for row in figures.by_topic}
    cards = [
        ("Records", f"{total.records:,}", f"in {len(topics):,} topic(s)"),
        ("Decoded", bytes_text(total.decoded_bytes), "keys, values and headers"),
        ("As stored", bytes_text(total.stored_bytes), f"{share:.0%} of that" if share else ""),
        ("Batches", f"{total.batches:,.0f}", f"{total.records_per_batch:,.1f} records each"),
        ("Keys", f"{total.keys:,}", "distinct, ± 2 %"),
        ("Record, p99", _or_none(total.size_bytes.p99, bytes_text), _median(total)),
    ]
    items = "".join(
        f'<div class="card"><dt>{name}</dt><dd>{value}<small>{note}</small></dd></div>'
        for name, value, note in cards
    )
    return f'<dl class="cards">{items}</dl>'


def _median(total: Traffic) -> str:
    return f"half have at most {_or_none(total.size_bytes.p50, bytes_text)}"


def _figure(plot: Plot) -> str:
    kind = "half" if plot.name in _HALVES else "wide"
    caption = f"<h2>{escape(plot.title)}</h2><p>{escape(plot.told)}</p>"
    return f'<figure class="{kind}"><figcaption>{caption}</figcaption>{plot.svg}</figure>'


def _topics(rows: Sequence[Traffic]) -> str:
    names = ["Topic", "Protocol", "Records", "Decoded", "As stored", "Batches", "Records per batch",
             "Keys", "Size p50", "Size p95", "Size p99", "Largest"]  # fmt: skip
    body = [
        [_text(row.topic or ""), _protocol(row.protocol or ""), *_traffic_cells(row),
         _number(f"{row.keys:,}"), *_size_cells(row)]
        for row in rows
    ]  # fmt: skip
    times = {
        "Late p50 / p99": [row.late_ms for row in rows],
        "Overdue p50 / p99": [row.overdue_ms for row in rows],
    }
    for name, found in times.items():
        if any(one.p99 for one in found):
            names.append(name)
            for cells, one in zip(body, found, strict=True):
                cells.append(_pair(one))
    return f"<section><h2>By topic and protocol</h2>{_table(names, 2, body)}</section>"


def _times(figures: Figures) -> str:
    steps, step_ms = steps_of(figures.by_time, figures.bucket_ms)
    rows = [(step.unix_ms, step.rows) for step in steps if step.rows]
    names = ["Time", "Protocols", "Records", "Decoded", "As stored", "Batches",
             "Records per batch", "Topics", "Largest record"]  # fmt: skip
    body = [
        [
            _text(moment_text(unix_ms)),
            ("".join(map(_dot, sorted({row.protocol or "" for row in found}))), False),
            *_traffic_cells(_added(found)),
            _number(f"{len({row.topic for row in found}):,}"),
            _number(bytes_text(max(row.size_bytes_max for row in found))),
        ]
        for unix_ms, found in rows[-STEPS_LISTED_MAX:]
    ]
    title = f"By {span_text(step_ms)}"
    table = _table(names, 2, body)
    return f"<section><details><summary>{title}</summary>{table}</details></section>"


def _notes(figures: Figures, made_unix_ms: int) -> str:
    notes = [
        "A record's protocol is told by its headers; one without any counts as Kafka's.",
        "Bytes as stored are those of batches; of a batch each record has a share by its size.",
        _ABOUT_TIMES,
        f"Looked at {moment_text(made_unix_ms)}.",
    ]
    if figures.total.undecodable:
        notes.insert(
            0,
            f'<span class="alarm">{figures.total.undecodable:,} batch(es) cannot be decoded</span> '
            "and are counted in nothing here.",
        )
    return f"<footer>{'<br>'.join(notes)}</footer>"


def _added(rows: Iterable[Traffic]) -> Traffic:
    """Return the sum of rows, for the columns that can be added."""
    found = list(rows)
    return found[0]._replace(
        records=sum(row.records for row in found),
        decoded_bytes=sum(row.decoded_bytes for row in found),
        stored_bytes=sum(row.stored_bytes for row in found),
        batches=sum(row.batches for row in found),
    )


def _traffic_cells(row: Traffic) -> list[Cell]:
    return [
        _number(f"{row.records:,}"),
        _number(bytes_text(row.decoded_bytes)),
        _number(bytes_text(row.stored_bytes)),
        _number(f"{row.batches:,.0f}"),
        _number(f"{row.records_per_batch:,.1f}"),
    ]


def _size_cells(row: Traffic) -> list[Cell]:
    sizes = [_or_none(size, bytes_text) for size in row.size_bytes]
    return [*map(_number, sizes), _number(bytes_text(row.size_bytes_max))]


def _pair(found: Percentiles) -> Cell:
    if found.p50 is None or found.p99 is None:
        return _number(_NONE)
    return _number(f"{ms_text(found.p50)} / {ms_text(found.p99)}")


def _or_none(value: int | None, text: object) -> str:
    assert callable(text)
    return _NONE if value is None else str(text(value))


def _text(text: str) -> Cell:
    return escape(text), False


def _number(text: str) -> Cell:
    return text, True


def _protocol(name: str) -> Cell:
    return f"{_dot(name)}{escape(name)}", False


def _dot(name: str) -> str:
    colour = f' style="background: var(--{name})"' if name in _DOTS else ""
    return f'<span class="dot" title="{escape(name)}"{colour}></span>'


def _table(names: Sequence[str], texts: int, rows: Sequence[Sequence[Cell]]) -> str:
    """Return a table; its first ``texts`` columns are texts."""
    head = "".join(
        f'<th scope="col"{"" if at < texts else " class=n"}>{name}</th>'
        for at, name in enumerate(names)
    )
    body = "".join(f"<tr>{''.join(_cell(*cell) for cell in row)}</tr>" for row in rows)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="scroll">{table}</div>'


def _cell(text: str, is_number: bool) -> str:  # noqa: FBT001 - a cell's two parts
    return f'<td class="n">{text}</td>' if is_number else f"<td>{text}</td>"
