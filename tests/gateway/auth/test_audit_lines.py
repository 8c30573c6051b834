"""Audit lines: their bound, and what peers cannot write into them."""

import structlog
from structlog.testing import capture_logs

from gateway.auth.audit import Audit, shown
from gateway.auth.ports import Principal
from gateway.clock import ManualClock
from gateway.config.log import LogConfig
from gateway.errors import TopicNotFound

ADA = Principal("ada", "kafka", "10.0.0.7")


def test_refusals_are_written_at_a_bounded_rate_and_the_gap_is_counted() -> None:
    structlog.reset_defaults()
    clock = ManualClock()
    audit = Audit(LogConfig(refusals_per_s_max=2), clock)
    with capture_logs() as lines:
        for _ in range(5):
            audit.login_refused("mqtt", "10.0.0.8", "mallory", "wrong")
        clock.advance(1_000)
        audit.note(ADA, "topic.delete", "orders", TopicNotFound("no such topic"))
    assert [line["event"] for line in lines] == ["login refused", "login refused", "audit"]
    assert lines[2]["left_out"] == 3


def test_changes_that_were_made_are_all_written() -> None:
    structlog.reset_defaults()
    audit = Audit(LogConfig(refusals_per_s_max=1), ManualClock())
    with capture_logs() as lines:
        for number in range(4):
            audit.note(ADA, "topic.create", f"orders-{number}")
    assert [line["name"] for line in lines] == [f"orders-{number}" for number in range(4)]


def test_a_name_cannot_look_like_a_line_of_its_own() -> None:
    assert "\n" not in shown("ada\n2026-01-01 [info] audit")
    assert len(shown("x" * 10_000)) < 400
