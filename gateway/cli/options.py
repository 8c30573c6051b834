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
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Namespace = Annotated[str, typer.Option(help="The topic's namespace.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
