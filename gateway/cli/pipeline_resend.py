"""Kafka endpoint access of ``pipeline dlq replay`` and ``pipeline backfill``."""

from pathlib import Path
from typing import Annotated, Final

import typer

_CA: Final = "PEM file of the authorities of the endpoint's certificate; with it TLS is spoken."

JobId = Annotated[
    str,
    typer.Option(
        "--id",
        help="Id of the run: records sent under an id are not sent again. Repeat that of a "
        "killed run.",
    ),
]
Rate = Annotated[float, typer.Option("--rate", min=0, help="Records per second; 0: no limit.")]
Bootstrap = Annotated[
    str,
    typer.Option(metavar="HOST:PORT", help="The Kafka endpoint; else that of the settings."),
]
User = Annotated[
    str, typer.Option(help="Log in as this user; HEADGATE_KAFKA_PASSWORD has the password.")
]
CaFile = Annotated[Path | None, typer.Option("--ca", metavar="FILE", help=_CA)]
