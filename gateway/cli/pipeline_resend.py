"""Kafka endpoint access of ``pipeline dlq replay`` and ``pipeline backfill``."""

from pathlib import Path
from typing import Annotated, Final

import typer

_CA: Final = "PEM file of the authorities of the endpoint's certificate; with it TLS is spoken."

JobId = Annotated[
    str,
    typer.Option(
        "--id",
        help="What one id has sent it never sends again: give that of a run that was killed.",
    ),
]
Rate = Annotated[float, typer.Option("--rate", min=0, help="Records a second; 0: all it can.")]
Bootstrap = Annotated[
    str,
    typer.Option(metavar="HOST:PORT", help="The Kafka endpoint; else that of the settings."),
]
User = Annotated[
    str, typer.Option(help="Log in as this user; HEADGATE_KAFKA_PASSWORD has the password.")
]
CaFile = Annotated[Path | None, typer.Option("--ca", metavar="FILE", help=_CA)]
