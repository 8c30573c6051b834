"""Structured log lines on standard error: an event text, then key=value pairs.

Everything logs through ``structlog.get_logger()``. Libraries that use the standard library's
logging come out the same way, from warnings up.
"""

import logging
import sys
from collections.abc import Iterable, MutableMapping
from contextlib import suppress
from typing import Any, Final

import structlog

from gateway.config.log import LogConfig
from gateway.log_events import (
    CONFIG_WARNING,
    LIBRARY_MESSAGE,
    add_event_name,
    without_event_name,
)

_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def configure(config: LogConfig) -> None:
    """Send the process's log lines to standard error in the configured form."""
    level = _LEVELS[config.level]
    renderer: structlog.types.Processor
    if config.format == "json":
        renderer = structlog.processors.JSONRenderer()
    else:
        renderer = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(),
            exception_formatter=structlog.dev.plain_traceback,
            pad_event_to=0,
        )
    processors: list[structlog.types.Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if config.format == "json":
        processors += [add_event_name, structlog.processors.format_exc_info]
    else:
        processors.append(without_event_name)
    structlog.configure(
        processors=[*processors, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: _StderrLogger(sys.stderr),
        cache_logger_on_first_use=True,
    )
    root = logging.getLogger()
    root.handlers = [_StructlogHandler(level=max(level, logging.WARNING))]
    root.setLevel(max(level, logging.WARNING))


def log_warnings(sentences: Iterable[str]) -> None:
    """Write one warning line per sentence."""
    for sentence in sentences:
        structlog.get_logger().warning(sentence, event_name=CONFIG_WARNING)


class _StderrLogger(structlog.WriteLogger):
    """Writer of log lines that ignores a closed standard error."""

    def msg(self, message: str) -> None:
        """Write one line."""
        with suppress(OSError, ValueError):  # A closed pipe, a full disk, a closed file.
            super().msg(message)

    log = debug = info = warn = warning = msg
    fatal = failure = err = error = critical = exception = msg


class _StructlogHandler(logging.Handler):
    """Handler that passes a library's log records to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log the record's text under its logger's name."""
        fields: MutableMapping[str, Any] = {
            "logger": record.name,
            "event_name": LIBRARY_MESSAGE,
        }
        if record.exc_info is not None:
            fields["exc_info"] = record.exc_info
        structlog.get_logger().log(record.levelno, record.getMessage(), **fields)
