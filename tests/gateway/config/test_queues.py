"""The config's words about queues mean what the kernel's words mean."""

from enum import Enum
from pathlib import Path

import pytest
from pydantic.fields import FieldInfo

from gateway.config.base import InvalidSettings
from gateway.config.loader import load_settings
from gateway.config.queues import DeclaredQueue
from gateway.queues.model import QueueSettings

SETTINGS = sorted(QueueSettings.model_fields)


def bounds(field: FieldInfo) -> list[tuple[str, int]]:
    return sorted(
        (name, getattr(bound, name))
        for bound in field.metadata
        for name in ("ge", "le")
        if hasattr(bound, name)
    )


def plain(value: object) -> object:
    return value.value if isinstance(value, Enum) else value


def test_a_declared_queue_has_every_setting_and_what_makes_it() -> None:
    assert sorted(DeclaredQueue.model_fields) == sorted(
        [*SETTINGS, "declared", "name", "partitions"]
    )


@pytest.mark.parametrize("name", SETTINGS)
def test_a_declared_queue_has_the_defaults_and_bounds_of_any_queue(name: str) -> None:
    declared, setting = DeclaredQueue.model_fields[name], QueueSettings.model_fields[name]
    assert declared.default == plain(setting.default)
    assert bounds(declared) == bounds(setting)


def test_queues_of_the_file_are_read(tmp_path: Path) -> None:
    file = tmp_path / "headgate.toml"
    file.write_text(
        "[queue]\nreceivers_max = 7\n[delay]\ndue_per_tick = 9\n"
        '[[queues]]\nname = "work"\nattempts_max = 3\ndead_letter_topic = "dead"\n'
        '[[queues]]\nname = "jobs.fifo"\norder = "key"\n'
    )

    settings = load_settings(file=file)

    assert settings.queue.receivers_max == 7
    assert settings.delay.due_per_tick == 9
    assert settings.queues == (
        DeclaredQueue(name="work", attempts_max=3, dead_letter_topic="dead"),
        DeclaredQueue(name="jobs.fifo", order="key"),
    )


def test_a_wrong_setting_of_a_queue_is_named(tmp_path: Path) -> None:
    file = tmp_path / "headgate.toml"
    file.write_text('[[queues]]\nname = "work"\nlease = 5\n')

    with pytest.raises(InvalidSettings, match=r"queues\[0\]\.lease: .*queues\[0\]\.lease_ms"):
        load_settings(file=file)
