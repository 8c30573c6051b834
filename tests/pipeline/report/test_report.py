"""``headgate pipeline report``: figures counted by hand, and a page that stands alone."""

import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from gateway.last_report import read_last_report
from gateway.model import TIMESTAMP_TYPE_MASK, stamp
from gateway.records.codec import encode_batch
from pipeline.log.options import parse_options
from pipeline.report.job import Figures, Percentiles, Report
from tests.pipeline.audit.damaged_logs import TOPIC, Batch, write_log
from tests.pipeline.running import Jobs, at
from tests.support.batches import patched

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("spark-2")]

_MINUTE_MS = 60_000
_START_UNIX_MS = 1_700_000_040_000  # a whole minute

Row = tuple[int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]


def _batch(base: int, rows: Sequence[Row]) -> Batch:
    data = encode_batch([(_START_UNIX_MS + row[0], *row[1:]) for row in rows])
    stamp(data, base, 0)
    return base, bytearray(data)


def _figures(spark: SparkSession, data: Path, **options: str) -> Figures:
    return Report(parse_options({"path": str(data), **options})).run(spark, lambda _: None)


def _sample(folder: Path) -> Path:
    """Two batches: three minutes, two protocols, 100 records."""
    kafka = [(n * 600, b"k%d" % (n % 7), b"v" * 93, ()) for n in range(60)]
    mqtt = [
        (_MINUTE_MS * (1 + n % 2), b"room", b"w" * (20 + n), (("mqtt.qos", b"1"),))
        for n in range(40)
    ]
    return write_log(folder, [_batch(0, kafka)], [_batch(60, mqtt)])


def test_figures_are_those_that_were_counted_by_hand(
    spark: SparkSession, tmp_path: Path
) -> None:
    data = _sample(tmp_path)

    found = _figures(spark, data)

    mqtt_bytes = sum(len("room") + 20 + n + len("mqtt.qos1") for n in range(40))
    assert (found.total.records, found.total.batches, found.total.undecodable) == (100, 2, 0)
    assert found.total.decoded_bytes == 60 * 95 + mqtt_bytes
    assert found.total.keys == 8
    by_protocol = {one.protocol: one for one in found.by_topic}
    assert {one.topic for one in found.by_topic} == {TOPIC}
    assert (by_protocol["kafka"].records, by_protocol["kafka"].keys) == (60, 7)
    assert (by_protocol["mqtt"].records, by_protocol["mqtt"].batches) == (40, 1)
    assert by_protocol["kafka"].size_bytes == Percentiles(95, 95, 95)
    assert by_protocol["mqtt"].size_bytes_max == 4 + 59 + 9
    assert [(one.unix_ms, one.protocol, one.records) for one in found.by_time] == [
        (_START_UNIX_MS, "kafka", 60),
        (_START_UNIX_MS + _MINUTE_MS, "mqtt", 20),
        (_START_UNIX_MS + 2 * _MINUTE_MS, "mqtt", 20),
    ]


def test_bytes_as_stored_are_those_of_the_batches(spark: SparkSession, tmp_path: Path) -> None:
    rows = [(0, None, b"x" * 400, ()), (_MINUTE_MS, None, b"x" * 400, ())]
    batches = [_batch(0, rows), _batch(2, [*rows, *rows])]

    found = _figures(spark, write_log(tmp_path, batches))

    assert found.total.stored_bytes == sum(len(data) for _, data in batches)
    half = found.total.stored_bytes // 2
    assert [one.stored_bytes for one in found.by_time] == [half, half]
    assert [one.batches for one in found.by_time] == [1, 1]


def test_every_record_has_one_size(spark: SparkSession, tmp_path: Path) -> None:
    rows = [(0, None, b"x" * size, ()) for size in (0, 1, 2, 3, 1_023, 1_024)]

    found = _figures(spark, write_log(tmp_path, [_batch(0, rows)]))

    assert [(one.exponent, one.records) for one in found.sizes] == [
        (-1, 1), (0, 1), (1, 2), (9, 1), (10, 1),
    ]  # fmt: skip


def test_lateness_is_how_far_a_time_lies_behind_one_before_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [(at_ms, None, b"v", ()) for at_ms in (5_000, 1_000, 9_000, 9_000)]

    found = _figures(spark, write_log(tmp_path, [_batch(0, rows)]))

    assert found.total.late_ms == Percentiles(0, 4_000, 4_000)
    assert found.total.overdue_ms == Percentiles(None, None, None)


def test_where_the_log_sets_the_time_a_delayed_message_says_how_overdue_it_was(
    spark: SparkSession, tmp_path: Path
) -> None:
    due = (("deliver-at", b"%d" % (_START_UNIX_MS - 70)),)
    bad = (("deliver-at", b"tomorrow"),)
    _, data = _batch(0, [(0, None, b"a", due), (0, None, b"b", ()), (0, None, b"c", bad)])
    stamped = patched(data, 21, ">h", TIMESTAMP_TYPE_MASK)

    found = _figures(spark, write_log(tmp_path, [(0, stamped)]))

    assert found.total.overdue_ms == Percentiles(70, 70, 70)
    assert found.total.late_ms == Percentiles(None, None, None)


def test_what_cannot_be_decoded_is_counted_and_stops_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    base, data = _batch(3, [(0, None, b"a", ())])
    data[-2] ^= 1
    sound = [_batch(0, [(0, None, b"a", ())] * 3), _batch(4, [(0, None, b"a", ())])]

    found = _figures(spark, write_log(tmp_path, [sound[0], (base, data), sound[1]]))

    assert (found.total.records, found.total.undecodable) == (4, 1)
    assert [one.undecodable for one in found.by_topic] == [1]


def test_times_bound_what_is_counted(spark: SparkSession, tmp_path: Path) -> None:
    until = str(_START_UNIX_MS + _MINUTE_MS)

    found = _figures(spark, _sample(tmp_path), endingTime=until)

    assert found.total.records == 60
    assert len(found.by_time) == 1


class _Page(HTMLParser):
    """Parser of a page that collects its content and checks that each element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.titles: list[str] = []
        self.cells: list[str] = []
        self.ids: list[str] = []
        self.sources: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.ids += [found["id"]] if found.get("id") else []  # type: ignore[list-item]
        self.sources += [found[name] or "" for name in ("src", "href") if name in found]
        if tag not in {"meta", "br"}:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-2:] == ["svg", "title"]:
            self.titles.append(data)
        if self._open[-1:] == ["td"]:
            self.cells.append(data)


def test_the_page_stands_alone_and_can_be_read_without_seeing_it(
    jobs: Jobs, tmp_path: Path
) -> None:
    page = tmp_path / "report.html"

    done = jobs.run("report", at(_sample(tmp_path / "data")), "--html", page)

    assert done.status == 0, done.err
    text = page.read_text()
    found = _Page(text)
    assert found.titles == [
        "Records per minute", "Bytes per minute", "Topics by bytes", "Sizes of records",
        "Lateness per minute",
    ]  # fmt: skip
    assert len(found.ids) == len(set(found.ids))
    assert all(one.startswith("#") for one in found.sources)
    assert "<script" not in text
    assert not re.search(r"(src|href)=.?https?:|url\(.?http|@import", text)
    for reference in re.findall(r'(?:href="#|url\(#)([^")]+)', text):
        assert reference in found.ids
    assert {TOPIC, "kafka", "mqtt", "60", "40"} <= set(found.cells)
    assert "100 records" in done.out
    assert f"the page is {page}" in done.out


def test_an_empty_log_has_a_page_too(spark: SparkSession, tmp_path: Path) -> None:
    from pipeline.report.page import page_of

    figures = _figures(spark, _sample(tmp_path), startingTime="2030-01-01T00:00:00Z")

    page = page_of(figures, source="<here> & there", made_unix_ms=_START_UNIX_MS)

    _Page(page)
    assert "there are no records that have a time" in page
    assert "&lt;here&gt; &amp; there" in page


def test_times_that_are_no_times_are_counted_and_stop_no_page(
    spark: SparkSession, tmp_path: Path
) -> None:
    from pipeline.report.page import page_of

    rows: list[Row] = [(at_ms, None, b"v", ()) for at_ms in (-_START_UNIX_MS - 1, 0, 1 << 59)]

    figures = _figures(spark, write_log(tmp_path, [_batch(0, rows)]))

    assert figures.total.records == 3
    _Page(page_of(figures, source="data", made_unix_ms=_START_UNIX_MS))


def test_json_has_all_figures(jobs: Jobs, tmp_path: Path) -> None:
    done = jobs.run("report", at(_sample(tmp_path)), "--per", "2", "--json")

    found = done.json
    assert found["total"]["records"] == 100
    assert [one["records"] for one in found["by_time"]] == [60, 20, 20]
    assert found["step_ms"] == 2 * _MINUTE_MS
    assert found["by_topic"][0]["size_bytes"].keys() == {"p50", "p95", "p99"}
    assert [(one["bytes_min"], one["bytes_max"], one["records"]) for one in found["sizes"]] == [
        (64, 127, 60), (32, 63, 31), (64, 127, 9),
    ]  # fmt: skip


def test_the_tables_say_what_each_figure_is_of(jobs: Jobs, tmp_path: Path) -> None:
    done = jobs.run("report", at(_sample(tmp_path)))

    lines = done.out.splitlines()
    heads = " ".join(lines[0].split())
    assert "keys size p50 size p95 size p99" in heads
    sizes = lines[lines.index("sizes of records:") + 1 :]
    assert sizes[0].split() == ["bytes", "protocol", "records", "share"]
    assert sizes[1].split() == ["64", "to", "127", "kafka", "60", "60.0", "%"]
    assert done.err.startswith("counting ")
    assert done.err.endswith(" of 1 partition(s)\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--since", "yesterday"], "startingTime 'yesterday' is neither"),
        (["--html", "/no/such/folder/page.html"], "there is no folder /no/such/folder"),
    ],
)
def test_what_cannot_be_reported_is_one_line(
    jobs: Jobs, tmp_path: Path, arguments: list[str], said: str
) -> None:
    done = jobs.run("report", at(_sample(tmp_path)), *arguments)

    assert done.status == 1
    (line,) = done.err.splitlines()
    assert said in line


def test_the_console_gets_a_copy_in_the_data_directory(jobs: Jobs, tmp_path: Path) -> None:
    data = _sample(tmp_path)

    done = jobs.run("report", at(data))

    assert done.status == 0, done.err
    kept = read_last_report(data)
    assert kept is not None
    assert (kept["job"], kept["total"]["records"]) == ("report", 100)
    assert kept["row_count"] == 2
    assert [one["topic"] for one in kept["by_topic"]] == [TOPIC, TOPIC]
