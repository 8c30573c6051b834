"""Log lines: their two forms, the level, and one line per kind."""

import json
import logging
import os
from collections.abc import Iterator

import pytest
import structlog

from gateway import logs
from gateway.config.log import LogConfig


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()


def test_json_lines_are_objects_with_event_level_and_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.configure(LogConfig(format="json"))
    structlog.get_logger().info("topic created", topic="orders", partitions=6)
    line = json.loads(capsys.readouterr().err)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "topic created",
        "level": "info",
        "topic": "orders",
        "partitions": 6,
    }


def test_console_lines_are_words_then_key_value(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogConfig())
    structlog.get_logger().info("topic created", topic="orders")
    assert capsys.readouterr().err.rstrip().endswith("[info     ] topic created topic=orders")


def test_lines_below_the_level_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogConfig(level="warning"))
    structlog.get_logger().info("chatter")
    structlog.get_logger().warning("trouble")
    assert "chatter" not in (err := capsys.readouterr().err)
    assert "trouble" in err


def test_a_traceback_is_one_json_field(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogConfig(format="json"))
    try:
        int("no wood")
    except ValueError:
        structlog.get_logger().exception("fire is out")
    line = json.loads(capsys.readouterr().err)
    assert line["event"] == "fire is out"
    assert "ValueError: invalid literal" in line["exception"]


def test_libraries_come_out_in_the_same_form_from_warnings_up(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.configure(LogConfig(format="json"))
    logging.getLogger("some.library").info("chatter")
    logging.getLogger("some.library").warning("careful with %s", "that")
    line = json.loads(capsys.readouterr().err)
    assert (line["event"], line["logger"]) == ("careful with that", "some.library")


def test_a_log_that_nobody_reads_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    broken = os.fdopen(writing, "w")
    monkeypatch.setattr("sys.stderr", broken)
    logs.configure(LogConfig())
    structlog.get_logger().error("nobody hears this")
    with pytest.raises(BrokenPipeError):  # What a print would have met.
        broken.close()


def test_a_json_line_has_the_stable_name_of_its_event(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.configure(LogConfig(format="json"))
    structlog.get_logger().info("ready", pid=1)
    logs.log_warnings(["storage.flush: a surprise"])
    logging.getLogger("library").warning("its words")
    names = [json.loads(line)["event_name"] for line in capsys.readouterr().err.splitlines()]
    assert names == ["node.ready", "config.warning", "library.message"]


def test_a_console_line_has_words_only(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogConfig())
    logs.log_warnings(["storage.flush: a surprise"])
    assert capsys.readouterr().err.rstrip().endswith("storage.flush: a surprise")
