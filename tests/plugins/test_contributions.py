"""A plug-in that contributes to the kernel, in a gateway process of its own."""

import http.client
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from gateway.testing.process import Program
from tests.gateway.test_registry import install

_ROOT: Final = Path(__file__).resolve().parents[2]
_S_MAX: Final = 60.0

CONFIG: Final = """
[node]
data_dir = "{data_dir}"
[admin]
bind = "127.0.0.1:0"
[storage]
adapter = "memory"
[adapters.notes]
[[topics]]
name = "orders"
configs = {{ "notes.kept" = 3 }}
"""
NOTES: Final = """
from gateway.config.base import FrozenConfig
from gateway.contributions import Contribution
from gateway.kernel import Endpoint
from gateway.model import TopicName
from gateway.sharded_stream import ShardedStream
from gateway.topics.config_specs import int_config


class Notes:
    PLUGIN_API = 1
    CONTRIBUTION = Contribution(
        internal_topics=("__notes_seen",),
        topic_configs={"notes.kept": int_config(1, 0, "", "Notes kept of a topic.", 9)},
    )
    Config = FrozenConfig

    def __init__(self, config, kernel):
        self._kernel = kernel

    async def start(self):
        kernel = self._kernel
        self._seen = await ShardedStream.open(
            "__notes_seen", kernel.broker, kernel.topics, kernel.clock
        )
        await self._seen.load()
        self._seen.put([(b"started", b"1")], lambda error: None)

    def register_metrics(self, metrics):
        metrics.gauge("headgate_notes_kept", "Notes kept of orders.", self._kept)

    def _kept(self):
        topic = self._kernel.topics.get(TopicName("default", "orders"))
        return int(topic.settings.contributed["notes.kept"])

    async def drain(self, seconds_max): ...

    async def stop(self): ...

    def endpoints(self):
        return [Endpoint("notes", f"seen {len(self._seen.values)}", "")]

    def connections(self):
        return []
"""


class NotesGateway:
    """Commands of a gateway that has the plug-in, and its config file."""

    def __init__(self, folder: Path, text: str) -> None:
        site = folder / "site"
        site.mkdir()
        points = "[headgate.adapters]\nnotes = notes_plugin:Notes\n"
        install(site, "headgate-notes", points, {"notes_plugin": text})
        self._folder = folder
        self._path = f"{site}:{_ROOT}"
        self.config = folder / "headgate.toml"
        self.config.write_text(CONFIG.format(data_dir=folder / "data"))

    def command(self, *arguments: str) -> Program:
        """Run a headgate command with the plug-in installed."""
        return Program(
            [sys.executable, "-m", "gateway", *arguments, "--config", str(self.config)],
            cwd=self._folder,
            env={"PYTHONPATH": self._path},
        )


@pytest.fixture
def gateway_of(tmp_path: Path) -> Callable[[str], NotesGateway]:
    return lambda text: NotesGateway(tmp_path, text)


@pytest.fixture
def serving(gateway_of: Callable[[str], NotesGateway]) -> Iterator[tuple[NotesGateway, str]]:
    """Yield a gateway that serves, and its line about being ready."""
    gateway = gateway_of(NOTES)
    program = gateway.command("serve")
    yield gateway, program.wait_for_line("headgate ready", within_s=_S_MAX)
    program.kill()


def test_a_plugin_has_its_stream_its_topic_config_and_its_metric(
    serving: tuple[NotesGateway, str],
) -> None:
    gateway, line = serving
    assert "notes seen 1" in line
    admin = http.client.HTTPConnection(line.rpartition("//")[2].strip(), timeout=_S_MAX)
    admin.request("GET", "/metrics")
    assert b"\nheadgate_notes_kept 3.0\n" in admin.getresponse().read()
    admin.close()
    described = gateway.command("topics", "describe", "orders", "--json").finish(
        within_s=_S_MAX
    )
    configs = {one["name"]: one["value"] for one in json.loads("\n".join(described))["configs"]}
    assert configs["notes.kept"] == "3"

    reserved = gateway.command("topics", "create", "__notes_seen")
    reserved.wait_for_line("reserved for internal use", within_s=_S_MAX)
    assert reserved.ended(within_s=_S_MAX) == 1


def test_a_metric_that_is_there_already_is_refused(
    gateway_of: Callable[[str], NotesGateway],
) -> None:
    gateway = gateway_of(NOTES.replace("headgate_notes_kept", "headgate_queues"))
    refused = gateway.command("serve")
    words = "adapter 'notes': metric 'headgate_queues' is there already"
    refused.wait_for_line(words, within_s=_S_MAX)
    assert refused.ended(within_s=_S_MAX) == 1


@pytest.mark.parametrize("command", ["serve", "check-config"])
@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (
            '"notes.kept"',
            '"retention.ms"',
            "'retention.ms' is contributed by the kernel and by",
        ),
        (
            '("__notes_seen",)',
            '("__notes_seen", "__notes_seen")',
            "'__notes_seen' is contributed by adapter 'notes' and by adapter 'notes'",
        ),
        ("PLUGIN_API = 1", "PLUGIN_API = 2", "needs plug-in interface 2"),
    ],
)
def test_what_is_there_already_is_refused(
    gateway_of: Callable[[str], NotesGateway], command: str, before: str, after: str, words: str
) -> None:
    gateway = gateway_of(NOTES.replace(before, after))
    refused = gateway.command(command)
    refused.wait_for_line(words, within_s=_S_MAX)
    assert refused.ended(within_s=_S_MAX) == 2
