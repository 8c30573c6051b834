"""Config files of a folder: their order, their lists, and the file that an error names."""

from pathlib import Path

import pytest

from gateway.config.loader import load_settings
from gateway.config.sources import config_files, merged, origins, read_sources
from gateway.errors import InvalidSettings


def write(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_files_of_conf_d_are_read_after_the_file_in_the_order_of_their_names(
    tmp_path: Path,
) -> None:
    main = write(tmp_path, "headgate.toml", '[log]\nlevel = "error"\nformat = "json"\n')
    write(tmp_path, "conf.d/20-b.toml", '[log]\nlevel = "debug"\n')
    write(tmp_path, "conf.d/10-a.toml", '[log]\nlevel = "warning"\n')
    write(tmp_path, "conf.d/notes.txt", "no TOML")
    settings = load_settings(file=main)
    assert (settings.log.level, settings.log.format) == ("debug", "json")


def test_a_folder_is_its_files(tmp_path: Path) -> None:
    write(tmp_path, "b.toml", "")
    write(tmp_path, "a.toml", "")
    assert [file.name for file in config_files(tmp_path)] == ["a.toml", "b.toml"]


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="has no file"):
        load_settings(file=tmp_path)


def test_lists_of_tables_of_several_files_are_added_up(tmp_path: Path) -> None:
    main = write(tmp_path, "headgate.toml", '[[topics]]\nname = "a"\n')
    write(tmp_path, "conf.d/b.toml", '[[topics]]\nname = "b"\n[[queues]]\nname = "q"\n')
    settings = load_settings(file=main)
    assert [one.name for one in settings.topics] == ["a", "b"]
    assert [one.name for one in settings.queues] == ["q"]


def test_an_assignment_replaces_the_list_of_the_files(tmp_path: Path) -> None:
    main = write(tmp_path, "headgate.toml", '[[topics]]\nname = "a"\n')
    settings = load_settings(file=main, assignments=['topics=[{name = "c"}]'])
    assert [one.name for one in settings.topics] == ["c"]


def test_an_error_in_a_list_names_the_file_that_it_is_in(tmp_path: Path) -> None:
    main = write(tmp_path, "headgate.toml", '[[topics]]\nname = "a"\n')
    second = write(tmp_path, "conf.d/b.toml", '[[topics]]\nname = "b"\npartitions = 0\n')
    with pytest.raises(InvalidSettings) as caught:
        load_settings(file=main)
    assert str(caught.value).startswith(f"{second}: topics[1].partitions: ")


def test_adapters_of_any_file_are_those_that_start(tmp_path: Path) -> None:
    main = write(tmp_path, "headgate.toml", "")
    write(tmp_path, "conf.d/kafka.toml", "[adapters.kafka]\n")
    assert list(load_settings(file=main).adapters) == ["kafka"]


def test_a_key_knows_where_it_is_from(tmp_path: Path) -> None:
    main = write(tmp_path, "headgate.toml", '[log]\nlevel = "error"\n')
    sources = read_sources(
        file=main,
        assignments=["log.format=json"],
        environment={"HEADGATE_LOG__LEVEL": "info", "HEADGATE_LOG_LEVEL": "left alone"},
    )
    assert merged(sources) == {"log": {"level": "info", "format": "json"}}
    assert origins(sources) == {
        "log.level": "HEADGATE_LOG__LEVEL",
        "log.format": "--set log.format",
    }
