"""``headgate config``: the schema of the config file; ``headgate init``: a first one."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Annotated, Any, Final

import typer

from gateway.cli.admin_client import Refused
from gateway.cli.output import print_json, say
from gateway.cli.synonyms import command_group

config_app = command_group("The config file: its schema.")

_WIDTH: Final = 96
_HEAD: Final = """\
# Config of a Headgate node. Lines that begin with # are the defaults: what you leave out stays as
# it is here. `headgate check-config --config {name}` checks the file and prints what holds;
# `headgate check-config --reference` describes every key.
"""
_SECTIONS: Final[Sequence[tuple[str, Sequence[str]]]] = (
    ("node", ("data_dir", "declared", "insecure", "drain_s_max")),
    ("admin", ("bind",)),
    ("storage", ("adapter", "flush")),
    ("metadata", ("url",)),
    ("topic_defaults", ("partitions", "auto_create", "configs")),
    ("log", ("level", "format")),
)
_LISTENER: Final = ("bind", "advertise", "tls_cert", "tls_key", "connections_max")
_EXAMPLES: Final = """
# Topics, queues and users that a start makes if they are missing. Each application can have a file
# of its own in a folder conf.d beside this one.

# [[topics]]
# name = "orders"
# partitions = 6
# configs = {"retention.ms" = 604800000}

# [[queues]]
# name = "work"
# attempts_max = 5
# dead_letter_topic = "work-dead"

# [[users]]
# name = "alice"
# password_file = "/run/secrets/alice"
"""


@config_app.command()
def schema() -> None:
    """Print the JSON Schema of the config file, for editors."""
    from gateway.config.json_schema import config_schema

    print_json(config_schema())


def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")] = Path(
        "headgate.toml"
    ),
    *,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a file that is there.")
    ] = False,
) -> None:
    """Write a config file with the usual keys, their meanings and their defaults."""
    text = "\n".join(_lines(file.name)) + _EXAMPLES
    try:
        with file.open("w" if force else "x", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError:
        raise Refused(f"{file} is there already; --force replaces it") from None
    except OSError as error:
        raise Refused(f"{file}: {error.strerror or error}") from error
    say(f"wrote {file}; next: headgate serve --config {file}")


def _lines(name: str) -> Iterator[str]:
    from gateway import registry
    from gateway.config.loader import load_settings

    settings = load_settings()
    yield _HEAD.format(name=name)
    for section, keys in _SECTIONS:
        config = (
            settings.storage.options if section == "storage" else getattr(settings, section)
        )
        yield f"[{section}]"
        if section == "storage":
            yield from _key(settings.storage, "adapter")
        yield from (
            line for key in keys if key in _fields(config) for line in _key(config, key)
        )
        yield ""
    yield "# Tables of adapters: with any of them, only those that are here start.\n"
    for adapter in registry.started_adapters():
        config = settings.adapters[adapter]
        yield f"[adapters.{adapter}]"
        yield from (
            line for key in _LISTENER if key in _fields(config) for line in _key(config, key)
        )
        yield ""


def _fields(config: Any) -> Any:  # noqa: ANN401 - a section, whatever its class
    return type(config).model_fields


def _key(config: Any, key: str) -> Iterator[str]:  # noqa: ANN401
    """Yield a key's meaning and default, as comments."""
    from gateway.cli.config_reference import meaning
    from gateway.config.toml_text import format_key, format_value

    for line in wrap(meaning(type(config), key), _WIDTH):
        yield f"# {line}"
    value = config.model_dump(mode="json")[key]
    yield (
        f"# {format_key(key)} = {format_value(value)}"
        if value is not None
        else f"# {key} = ..."
    )
