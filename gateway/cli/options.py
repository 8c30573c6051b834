"""Options that many commands share."""

from pathlib import Path
from typing import Annotated

import typer

Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="The node's config file, if it has one."),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="A setting, as for serve; may be repeated."
    ),
]
Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="Admin address of a node, http://broker.example:9644, in place of one on this "
        "machine; also HEADGATE_URL.",
        show_default=False,
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="File with the token for --url; also HEADGATE_TOKEN_FILE.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Namespace = Annotated[str, typer.Option(help="The topic's namespace.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
