"""Settings: sources and their order, messages about what is wrong, exposure."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from gateway import registry
from gateway.auth.ports import Operation
from gateway.auth.resource_types import ResourceTypes
from gateway.auth.rule_words import operation_words
from gateway.config.advice import check_exposure, warnings
from gateway.config.base import FrozenConfig, InvalidSettings, ListenerConfig, parse_address
from gateway.config.loader import load_settings
from gateway.config.settings import BrokerConfig, Settings


class TinyConfig(ListenerConfig):
    authenticates_users: ClassVar[bool] = True

    bind: str = "127.0.0.1:7777"
    line_bytes_max: int = 4_096


class Tiny:
    Config = TinyConfig


class OpenConfig(ListenerConfig):
    when_unconfigured: ClassVar[Mapping[str, Any]] = {"is_welcoming": True}

    bind: str = "127.0.0.1:7778"
    is_welcoming: bool = False


class Open:
    Config = OpenConfig


class SignedConfig(ListenerConfig):
    refuses_strangers: ClassVar[bool] = True


class Signed:
    Config = SignedConfig


class DrawerConfig(FrozenConfig):
    flush: str = "group"
    drawers_max: int = 3


class Drawer:
    Config = DrawerConfig


class FarAwayConfig(FrozenConfig):
    defaults_elsewhere: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "broker": {"wal_queued_bytes_max": 192_000_000, "wal_queued_bytes_low": 128_000_000},
        "adapters.tiny": {"line_bytes_max": 8_192},
    }


class FarAway:
    Config = FarAwayConfig


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        registry, "ADAPTERS", {"tiny": f"{__name__}:Tiny", "open": f"{__name__}:Open"}
    )
    monkeypatch.setattr(
        registry,
        "STORAGE_ADAPTERS",
        {
            "segment_log": f"{__name__}:Drawer",
            "memory": f"{__name__}:Drawer",
            "far_away": f"{__name__}:FarAway",
        },
    )


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "headgate.toml"
    file.write_text(text)
    return file


def message_for(file: Path | None = None, *assignments: str, **environment: str) -> str:
    with pytest.raises(InvalidSettings) as caught:
        load_settings(file=file, assignments=assignments, environment=environment)
    return str(caught.value)


def test_without_a_file_every_built_in_adapter_starts_on_loopback() -> None:
    settings = load_settings()
    assert list(settings.adapters) == ["tiny", "open"]
    assert settings.adapters["tiny"] == TinyConfig(bind="127.0.0.1:7777")
    assert settings.storage.adapter == "segment_log"
    assert settings.storage.options == DrawerConfig()


@pytest.mark.parametrize(
    ("text", "assignments", "is_unconfigured"),
    [
        ("", (), True),
        ("[node]\nnode_id = 7\n", ("adapters.tiny.line_bytes_max=1",), True),
        ("[adapters.open]\n", (), False),
        ("", ("adapters.open.bind=127.0.0.1:1",), False),
        ("[adapters.open]\nis_welcoming = true\n", (), True),
    ],
)
def test_an_adapter_may_offer_more_where_nothing_of_it_is_set(
    tmp_path: Path, text: str, assignments: tuple[str, ...], *, is_unconfigured: bool
) -> None:
    settings = load_settings(file=write(tmp_path, text), assignments=assignments)
    config = settings.adapters["open"]
    assert isinstance(config, OpenConfig)
    assert config.is_welcoming is is_unconfigured


def test_a_file_that_names_adapters_starts_only_those(tmp_path: Path) -> None:
    file = write(tmp_path, "[adapters.open]\nbind = '127.0.0.1:1'\n")
    assert list(load_settings(file=file).adapters) == ["open"]


def test_a_file_that_names_no_adapter_starts_the_built_in_ones(tmp_path: Path) -> None:
    file = write(tmp_path, "[node]\nnode_id = 7\n")
    settings = load_settings(file=file)
    assert (settings.node.node_id, list(settings.adapters)) == (7, ["tiny", "open"])


def test_an_assignment_moves_one_adapter_and_keeps_the_others() -> None:
    settings = load_settings(assignments=["adapters.tiny.bind=127.0.0.1:19092"])
    assert settings.adapters["tiny"] == TinyConfig(bind="127.0.0.1:19092")
    assert "open" in settings.adapters


def test_later_sources_win_file_environment_assignment(tmp_path: Path) -> None:
    file = write(tmp_path, "[node]\nnode_id = 2\ndrain_s_max = 2\n[storage]\ndrawers_max = 2\n")
    settings = load_settings(
        file=file,
        assignments=["node.drain_s_max=4"],
        environment={
            "HEADGATE_NODE__DRAIN_S_MAX": "3",
            "HEADGATE_STORAGE__DRAWERS_MAX": "3",
            "HEADGATE_PORT_9092_TCP": "tcp://10.0.0.1:9092",
            "HOME": "/",
        },
    )
    assert (settings.node.node_id, settings.node.drain_s_max) == (2, 4)
    assert settings.storage.options == DrawerConfig(drawers_max=3)


def test_the_environment_can_name_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, "[node]\nnode_id = 9\n")
    assert load_settings(environment={"HEADGATE_CONFIG": str(file)}).node.node_id == 9


@pytest.mark.parametrize(
    ("assignment", "path", "expected"),
    [
        ("node.insecure=true", ("node", "insecure"), True),
        ("node.data_dir=/tmp/a b", ("node", "data_dir"), Path("/tmp/a b")),
        ('node.data_dir="/tmp/q"', ("node", "data_dir"), Path("/tmp/q")),
        ("broker.producer_ids_max=1_000", ("broker", "producer_ids_max"), 1_000),
        (
            'topic_defaults.configs."retention.ms"=5',
            ("topic_defaults", "configs"),
            {"retention.ms": "5"},
        ),
        ("metadata.url=postgresql://h/d?a=b", ("metadata", "url"), "postgresql://h/d?a=b"),
    ],
)
def test_an_assignment_is_toml_or_else_text(
    assignment: str, path: tuple[str, str], expected: object
) -> None:
    settings = load_settings(assignments=[assignment])
    assert getattr(getattr(settings, path[0]), path[1]) == expected


def test_a_value_with_a_line_break_sets_one_key_only() -> None:
    settings = load_settings(assignments=["metadata.url=x\nnode.insecure = true"])
    assert settings.metadata.url == "x\nnode.insecure = true"
    assert not settings.node.insecure


def test_topics_of_the_file_take_numbers_as_config_texts(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        '[[topics]]\nname = "orders"\npartitions = 6\n'
        'configs = {"retention.ms" = 1000, "preallocate" = true}\n',
    )
    (topic,) = load_settings(file=file).topics
    assert (topic.name, topic.partitions) == ("orders", 6)
    assert topic.configs == {"retention.ms": "1000", "preallocate": "true"}


def test_an_unknown_key_names_its_path_its_source_and_the_nearest(tmp_path: Path) -> None:
    file = write(tmp_path, "[node]\ndata_dri = 'x'\n")
    assert (
        message_for(file) == f"{file}: node.data_dri: unknown key; did you mean node.data_dir?"
    )


def test_an_unknown_key_of_an_adapter_or_storage_names_the_nearest() -> None:
    assert message_for(None, "adapters.tiny.bnd=1:2").endswith(
        "adapters.tiny.bnd: unknown key; did you mean adapters.tiny.bind?"
    )
    assert message_for(None, "storage.flsh=never") == (
        "--set storage.flsh: storage.flsh: unknown key; did you mean storage.flush?"
    )


def test_a_key_in_the_wrong_section_is_found_in_the_right_one() -> None:
    assert message_for(None, "node.auto_create=false").endswith(
        "unknown key; did you mean topic_defaults.auto_create?"
    )


def test_an_unknown_section_and_adapter_name_the_nearest(tmp_path: Path) -> None:
    assert "nod: unknown key; did you mean node?" in message_for(write(tmp_path, "[nod]\n"))
    assert "did you mean 'tiny'?" in message_for(write(tmp_path, "[adapters.tinny]\n"))
    assert "did you mean 'memory'?" in message_for(None, "storage.adapter=memroy")


def test_a_key_inside_a_list_names_its_index(tmp_path: Path) -> None:
    file = write(tmp_path, '[[topics]]\nname = "a"\n[[topics]]\nname = "b"\npartition = 3\n')
    assert (
        "topics[1].partition: unknown key; did you mean topics[1].partitions?"
        in message_for(file)
    )


def test_a_bad_value_is_shown_with_what_is_allowed() -> None:
    text = message_for(HEADGATE_NODE__NODE_ID="0")
    assert text == (
        "HEADGATE_NODE__NODE_ID: node.node_id: "
        "input should be greater than or equal to 1, not 0"
    )
    assert "adapters.tiny.bind: port '99999' is not 0 to 65535" in message_for(
        None, "adapters.tiny.bind=127.0.0.1:99999"
    )


def test_every_bad_key_gets_its_line() -> None:
    text = message_for(None, "node.node_id=0", "log.level=loud", "adapters.open.x=1")
    assert len(text.splitlines()) == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[node\n", "is not TOML"),
        ("node = 3\n", "node: "),
        ("adapters = 3\n", "adapters: is not a table"),
    ],
)
def test_a_broken_file_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    said = message_for(write(tmp_path, text))
    assert words in said
    assert len(said.splitlines()) == 1


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    assert message_for(tmp_path / "none.toml").endswith("none.toml: No such file or directory")


@pytest.mark.parametrize("assignment", ["node.insecure", "=1", "a b=1"])
def test_an_assignment_that_is_none_is_refused(assignment: str) -> None:
    assert message_for(None, assignment).startswith(f"--set {assignment}")


def test_a_value_where_a_table_belongs_is_refused(tmp_path: Path) -> None:
    assert "log: is a value, not a table" in message_for(
        write(tmp_path, "log = 3\n"), "log.level=info"
    )


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().node.node_id = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "is_loopback"),
    [
        ("127.0.0.1:1", True),
        ("127.8.8.8:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("example.org:1", False),
    ],
)
def test_loopback_is_what_only_this_machine_reaches(text: str, *, is_loopback: bool) -> None:
    assert parse_address(text).is_loopback is is_loopback
    assert str(parse_address(text)) == text


@pytest.mark.parametrize(
    "text", ["", "9092", "host", "host:", ":9092", "::1:9092", "[]:1", "h:-1", "h:²"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"host:port|port"):
        parse_address(text)


def exposed(*assignments: str) -> Settings:
    return load_settings(
        assignments=["adapters.tiny.bind=0.0.0.0:1", *assignments],
    )


def test_listening_to_others_needs_users_or_insecure() -> None:
    with pytest.raises(InvalidSettings, match=r"adapters\.tiny\.bind: 0\.0\.0\.0:1 is open"):
        check_exposure(exposed(), users_configured=False)
    check_exposure(exposed(), users_configured=True)
    check_exposure(exposed("node.insecure=true"), users_configured=False)


def test_client_certificates_are_authentication() -> None:
    tls = [f"adapters.tiny.{key}=x.pem" for key in ("tls_cert", "tls_key", "tls_client_ca")]
    check_exposure(exposed(*tls), users_configured=False)
    with pytest.raises(InvalidSettings):
        check_exposure(exposed(*tls[:2]), users_configured=False)


def test_users_do_not_help_an_adapter_that_asks_for_no_password() -> None:
    settings = load_settings(assignments=["adapters.open.bind=0.0.0.0:1"])
    with pytest.raises(InvalidSettings, match=r"adapters\.open\.bind"):
        check_exposure(settings, users_configured=True)


def test_who_refuses_strangers_may_listen_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "ADAPTERS", {"signed": f"{__name__}:Signed"})
    settings = load_settings(assignments=["adapters.signed.bind=0.0.0.0:1"])
    check_exposure(settings, users_configured=False)


def test_a_certificate_without_its_key_is_refused() -> None:
    assert "tls_cert and tls_key need each other" in message_for(
        None, "adapters.tiny.tls_cert=x.pem"
    )


def test_marks_and_ranges_must_not_cross() -> None:
    assert "broker: wal_queued_bytes_low is above" in message_for(
        None, "broker.wal_queued_bytes_low=99000000"
    )
    assert "groups: session_timeout_ms_min is above" in message_for(
        None, "groups.session_timeout_ms_min=2000000"
    )


def test_a_storage_brings_defaults_for_other_tables() -> None:
    settings = load_settings(assignments=["storage.adapter=far_away"])

    assert settings.broker.wal_queued_bytes_max == 192_000_000
    assert settings.broker.wal_queued_bytes_low == 128_000_000
    assert settings.adapters["tiny"] == TinyConfig(line_bytes_max=8_192)


def test_what_is_set_counts_and_what_goes_with_it_is_as_ever() -> None:
    settings = load_settings(
        assignments=["storage.adapter=far_away", "broker.wal_queued_bytes_max=40000000"]
    )
    own = BrokerConfig(wal_queued_bytes_max=40_000_000)
    assert settings.broker == own
    assert settings.adapters["tiny"] == TinyConfig(line_bytes_max=8_192)


def test_a_storages_defaults_start_no_adapter_and_hide_no_fault(tmp_path: Path) -> None:
    file = write(tmp_path, '[storage]\nadapter = "far_away"\n[adapters.open]\n')
    assert list(load_settings(file=file).adapters) == ["open"]
    file = write(tmp_path, 'broker = 3\n[storage]\nadapter = "far_away"\n')
    assert "broker" in message_for(file)
    file = write(tmp_path, 'adapters = 3\n[storage]\nadapter = "far_away"\n')
    assert "adapters: is not a table of tables" in message_for(file)
    assert "no storage adapter 'far' is installed" in message_for(None, "storage.adapter=far")


def test_surprises_are_warned_of() -> None:
    settings = load_settings(
        assignments=["storage.adapter=memory", "storage.flush=never", "node.insecure=true"]
    )
    said = " ".join(warnings(settings))
    assert "storage.adapter" in said
    assert "storage.flush" in said
    assert "node.insecure" in said
    assert warnings(load_settings()) == []


def test_rules_know_every_operation_and_refuse_what_contradicts_itself(tmp_path: Path) -> None:
    of_adapters = {"publish", "subscribe", "configure"}
    words = {operation.value for operation in Operation} | of_adapters
    assert set(operation_words(ResourceTypes())) == words
    file = write(tmp_path, '[[auth.rules]]\noperation = "reed"\n')
    assert "auth.rules[0].operation: input should be 'all', 'read'" in message_for(file)
    file = write(tmp_path, '[[auth.rules]]\nname = "orders"\n')
    assert "auth.rules[0]: name goes with pattern" in message_for(file)
    file = write(tmp_path, '[[auth.rules]]\nname = "orders"\npattern = "prefix"\n')
    assert load_settings(file=file).auth.rules[0].name == "orders"
