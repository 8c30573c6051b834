"""The registry: built-in names, installed plug-ins, and what is said about broken ones."""

import sys
from pathlib import Path

import pytest

from gateway import registry
from gateway.config.base import FrozenConfig
from gateway.registry import BrokenPlugin, UnknownPlugin


def install(
    site: Path, distribution: str, points: str, modules: dict[str, str] | None = None
) -> None:
    """Put a distribution with these entry points on disk, as pip would."""
    folder = site / f"{distribution.replace('-', '_')}-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n"
    )
    (folder / "entry_points.txt").write_text(points)
    for name, text in (modules or {}).items():
        (site / f"{name}.py").write_text(text)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.startswith("plugged_")]:
        monkeypatch.delitem(sys.modules, name)
    return tmp_path


GOOD = """
from gateway.config.base import FrozenConfig

class Smoke:
    PLUGIN_API = 1

    class Config(FrozenConfig):
        fires_max: int = 2
"""


def test_a_plugin_is_found_by_its_entry_point(site: Path) -> None:
    points = "[headgate.adapters]\nsmoke = plugged_good:Smoke\n"
    install(site, "signal-fires", points, {"plugged_good": GOOD})
    found = registry.adapter_class("smoke")
    assert (found.__module__, found.__name__) == ("plugged_good", "Smoke")
    assert registry.config_class(found)().model_dump() == {"fires_max": 2}
    assert registry.adapter_names() == [*registry.ADAPTERS, "smoke"]


@pytest.mark.parametrize("group", ["adapters", "storage_adapters"])
@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ("", "does not say which plug-in interface it needs: PLUGIN_API = 1"),
        ("PLUGIN_API = 2", "needs plug-in interface 2, this version of Headgate has 1"),
        ("PLUGIN_API = '1'", "needs plug-in interface '1'"),
    ],
)
def test_a_plugin_for_another_interface_is_refused(
    site: Path, group: str, declared: str, words: str
) -> None:
    text = GOOD.replace("PLUGIN_API = 1", declared)
    install(
        site,
        "old-smoke",
        f"[headgate.{group}]\nsmoke = plugged_old:Smoke\n",
        {"plugged_old": text},
    )
    load = {"adapters": registry.adapter_class, "storage_adapters": registry.storage_class}[
        group
    ]
    with pytest.raises(BrokenPlugin) as caught:
        load("smoke")
    assert words in str(caught.value)
    assert "adapter 'smoke' of old-smoke (plugged_old:Smoke)" in str(caught.value)


def test_storages_have_names_of_their_own(site: Path) -> None:
    points = "[headgate.storage_adapters]\nsmoke = plugged_good:Smoke\n"
    install(site, "signal-fires", points, {"plugged_good": GOOD})
    assert registry.storage_class("smoke").__name__ == "Smoke"
    assert "smoke" in registry.storage_names()
    with pytest.raises(UnknownPlugin):
        registry.adapter_class("smoke")


def test_nothing_is_imported_before_it_is_named(site: Path) -> None:
    points = "[headgate.adapters]\nsmoke = plugged_good:Smoke\n"
    install(site, "signal-fires", points, {"plugged_good": GOOD})
    registry.adapter_names()
    assert "plugged_good" not in sys.modules


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(
        UnknownPlugin, match="no adapter 'kafak' is installed; did you mean 'kafka'"
    ):
        registry.adapter_class("kafak")
    with pytest.raises(UnknownPlugin, match="there are: memory, segment_log"):
        registry.storage_class("zzz")


@pytest.mark.parametrize(
    ("target", "text", "words"),
    [
        ("plugged_bad:Smoke", "raise RuntimeError('no wood')", "RuntimeError: no wood"),
        ("plugged_bad:Smoke", "import no_such_module_at_all", "no_such_module_at_all"),
        ("plugged_bad:Smoke", "", "has no attribute 'Smoke'"),
        ("plugged_bad:Smoke", "Smoke = 3", "is not a class"),
    ],
)
def test_a_broken_plugin_is_named(site: Path, target: str, text: str, words: str) -> None:
    install(site, "wet-wood", f"[headgate.adapters]\nsmoke = {target}\n", {"plugged_bad": text})
    with pytest.raises(BrokenPlugin) as caught:
        registry.adapter_class("smoke")
    assert "adapter 'smoke' of wet-wood" in str(caught.value)
    assert words in str(caught.value)


def test_a_name_that_two_distributions_offer_is_refused(site: Path) -> None:
    install(site, "one-fire", "[headgate.adapters]\nsmoke = plugged_good:Smoke\n")
    install(site, "two-fires", "[headgate.adapters]\nsmoke = plugged_other:Smoke\n")
    with pytest.raises(BrokenPlugin, match="offered by one-fire and two-fires"):
        registry.adapter_class("smoke")


def test_a_built_in_name_cannot_be_taken_over(site: Path) -> None:
    points = "[headgate.adapters]\nkafka = plugged_good:Smoke\n"
    install(site, "signal-fires", points, {"plugged_good": GOOD})
    assert registry.adapter_class("kafka").__module__ == "adapters.kafka.server"
    assert registry.adapter_names().count("kafka") == 1


def test_a_plugin_without_a_config_class_is_refused() -> None:
    class Bare:
        pass

    class Wrong:
        Config = dict

    for plugin in (Bare, Wrong):
        with pytest.raises(BrokenPlugin, match="has no Config derived from"):
            registry.config_class(plugin)


@pytest.mark.parametrize("name", list(registry.ADAPTERS))
def test_every_built_in_adapter_loads(name: str) -> None:
    assert issubclass(registry.config_class(registry.adapter_class(name)), FrozenConfig)


@pytest.mark.parametrize("name", list(registry.STORAGE_ADAPTERS))
def test_every_built_in_storage_loads(name: str) -> None:
    assert issubclass(registry.config_class(registry.storage_class(name)), FrozenConfig)


def test_a_library_that_an_extra_brings_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("storage_adapters.s3.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "boto3", None)  # as where it is not installed
    with pytest.raises(BrokenPlugin, match=r"needs boto3: .*pip.* install .*\[s3\]'"):
        registry.storage_class("s3")
