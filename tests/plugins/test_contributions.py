"""A plug-in that contributes to the kernel, in a gateway process of its own."""

import http.client
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
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
RULE: Final = """
[[auth.rules]]
principal = "ada"
operation = "jot"
resource = "notes_page"
pattern = "ending"
name = ".txt"
"""
OFF: Final = "[adapters.mqtt]\nbind = '127.0.0.1:0'"  # in place of [adapters.notes]
NOTES: Final = """
from gateway.auth.ports import Operation, PatternKind, Principal, ResourceType
from gateway.config.base import FrozenConfig
from gateway.contributions import Contribution
from gateway.kernel import Endpoint
from gateway.model import TopicName
from gateway.sharded_stream import ShardedStream
from gateway.topics.config_specs import int_config


ENDING = PatternKind("ending", lambda pattern, name: name.endswith(pattern))
PAGE = ResourceType(
    "notes_page", (PatternKind.LITERAL, ENDING), words={"jot": Operation.WRITE}, plural="pages"
)


class Notes:
    PLUGIN_API = 1
    CONTRIBUTION = Contribution(
        internal_topics=("__notes_seen",),
        topic_configs={"notes.kept": int_config(1, 0, "", "Notes kept of a topic.", 9)},
        resource_types=(PAGE,),
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
        for user in ("ada", "bob", "eve"):
            metrics.gauge(
                f"headgate_notes_{user}_jots", "1 if the user may.", lambda one=user: self._may(one)
            )

    def _may(self, user):
        asking = Principal(user, "notes", "127.0.0.1")
        allows = self._kernel.authorizer.allows
        return int(allows(asking, Operation.WRITE, PAGE, "a.txt"))

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
        self._programs: list[Program] = []

    def command(self, *arguments: str) -> Program:
        """Run a headgate command with the plug-in installed."""
        program = Program(
            [sys.executable, "-m", "gateway", *arguments, "--config", str(self.config)],
            cwd=self._folder,
            env={"PYTHONPATH": self._path},
        )
        self._programs.append(program)
        return program

    def close(self) -> None:
        """End what still runs, also after a test that failed."""
        for program in self._programs:
            program.kill()

    def serve(self) -> Program:
        """Start the gateway and wait until it is ready."""
        program = self.command("serve")
        self._ready = program.wait_for_line("headgate ready", within_s=_S_MAX)
        return program

    def admin(self, method: str, path: str, body: object = None) -> bytes:
        """Return the answer of the admin endpoint of the gateway that ``serve`` started."""
        admin = http.client.HTTPConnection(
            self._ready.rpartition("//")[2].strip(), timeout=_S_MAX
        )
        token = (self._folder / "data" / "admin.token").read_text().strip()
        text = None if body is None else json.dumps(body)
        admin.request(method, path, text, {"Authorization": f"Bearer {token}"})
        response = admin.getresponse()
        answer = response.read()
        admin.close()
        assert response.status < 300, answer
        return answer


@pytest.fixture
def gateway_of(tmp_path: Path) -> Iterator[Callable[[str], NotesGateway]]:
    with ExitStack() as stack:
        yield lambda text: stack.enter_context(closing(NotesGateway(tmp_path, text)))


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


def jots(gateway: NotesGateway) -> dict[str, bool]:
    """Return which users may write to the page a.txt, by the plug-in's own question."""
    lines = gateway.admin("GET", "/metrics").decode().splitlines()
    return {user: f"headgate_notes_{user}_jots 1.0" in lines for user in ("ada", "bob", "eve")}


def test_a_rule_for_a_plugins_resources_works_by_config_rest_and_cli(
    gateway_of: Callable[[str], NotesGateway],
) -> None:
    gateway = gateway_of(NOTES)
    gateway.config.write_text(gateway.config.read_text() + RULE)
    program = gateway.serve()
    assert jots(gateway) == {"ada": True, "bob": False, "eve": False}

    bobs = {"effect": "allow", "operation": "jot", "resource": "notes_page", "name": ".txt"}
    bobs |= {"principal": "bob", "pattern": "ending"}
    made = json.loads(gateway.admin("POST", "/v1/rules", bobs))
    assert bobs.items() <= made.items()
    eves = ("allow", "jot", "notes_page", "a.txt", "--user", "eve")
    gateway.command("rules", "add", *eves).finish(within_s=_S_MAX)
    assert jots(gateway) == {"ada": True, "bob": True, "eve": True}
    listed = json.loads(
        "".join(gateway.command("rules", "ls", "--json").finish(within_s=_S_MAX))
    )
    assert [(one["pattern"], one["principal"], one["source"]) for one in listed] == [
        ("ending", "ada", "config"), ("ending", "bob", "store"), ("literal", "eve", "store"),
    ]  # fmt: skip
    gateway.command("rules", "rm", *eves, "--yes").finish(within_s=_S_MAX)
    assert jots(gateway) == {"ada": True, "bob": True, "eve": False}

    refused = gateway.command("rules", "add", "allow", "read", "notes_pag", "a.txt")
    refused.wait_for_line("'amqp_permission' or 'notes_page', not 'notes_pag'", within_s=_S_MAX)
    assert refused.ended(within_s=_S_MAX) == 1
    refused = gateway.command("rules", "add", "allow", "read", "notes_page", "a", "--prefix")
    words = "a rule for notes_page has one of the patterns literal, ending"
    refused.wait_for_line(words, within_s=_S_MAX)
    assert refused.ended(within_s=_S_MAX) == 1
    program.kill()


def test_a_rule_of_an_adapter_that_is_off_is_kept(
    gateway_of: Callable[[str], NotesGateway],
) -> None:
    gateway = gateway_of(NOTES)
    on = gateway.config.read_text()
    on = on.replace('adapter = "memory"', 'adapter = "segment_log"')
    off = on.replace("[adapters.notes]", OFF).replace('configs = { "notes.kept" = 3 }', "")
    gateway.config.write_text(on)
    program = gateway.serve()
    for user in ("bob", "eve"):
        rule = ("allow", "jot", "notes_page", "a.txt", "--user", user)
        gateway.command("rules", "add", *rule).finish(within_s=_S_MAX)
    assert jots(gateway) == {"ada": False, "bob": True, "eve": True}
    program.stop()

    gateway.config.write_text(off)
    program = gateway.serve()
    [bobs, _] = json.loads(gateway.admin("GET", "/v1/rules"))["rules"]
    assert (bobs["resource"], bobs["operation"]) == ("notes_page", "write")
    gone = ("allow", "write", "notes_page", "a.txt", "--user", "eve", "--yes")
    gateway.command("rules", "rm", *gone).finish(within_s=_S_MAX)
    program.stop()

    gateway.config.write_text(on)
    program = gateway.serve()
    assert jots(gateway) == {"ada": False, "bob": True, "eve": False}
    program.kill()


@pytest.mark.parametrize("command", ["serve", "check-config"])
def test_a_rule_for_a_resource_that_nothing_has_is_refused(
    gateway_of: Callable[[str], NotesGateway], command: str
) -> None:
    gateway = gateway_of(NOTES)
    gateway.config.write_text(gateway.config.read_text() + RULE.replace("notes_page", "page"))
    refused = gateway.command(command)
    kernel = "'topic', 'group', 'cluster', 'transactional_id', 'exchange'"
    known = f"{kernel}, 'mqtt_topic', 'amqp_permission' or 'notes_page'"
    words = f"auth.rules[0].resource: input should be {known}, not 'page'"
    refused.wait_for_line(words, within_s=_S_MAX)
    assert refused.ended(within_s=_S_MAX) == 2


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
        (
            "(PAGE,)",
            "(PAGE, PAGE)",
            "resource type 'notes_page' is contributed by adapter 'notes' and by adapter 'notes'",
        ),
        (
            '"notes_page"',
            '"topic"',
            "resource type 'topic' is contributed by the kernel and by",
        ),
        ('"notes_page"', '"page"', "'page': its name does not begin with 'notes_'"),
        ('"ending", ', '"prefix", ', "pattern kind 'prefix' is the kernel's"),
        ("(PatternKind.LITERAL, ENDING)", "()", "it has no pattern kind"),
        ("(PatternKind.LITERAL, ENDING)", "(ENDING, ENDING)", "'ending' is there twice"),
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
