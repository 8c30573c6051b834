"""REST for the config: ``GET /v1/config`` returns the effective settings, secrets masked.

``origin`` is the file, the variable or the option that set a key; null: the default, or what
another setting implies.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gateway.admin.state import AdminState
from gateway.config.advice import warnings
from gateway.config.defaults import default_tables
from gateway.config.sources import origin_of
from gateway.config.text import as_tables


def routes(state: AdminState) -> list[Route]:
    """Return the route."""

    async def config(_: Request) -> Response:
        settings = state.running().settings
        keys = [
            {**one, "origin": origin_of(one["key"], settings.origins)}
            for one in _keys(as_tables(settings), default_tables(settings), "")
        ]
        return JSONResponse({"keys": keys, "warnings": warnings(settings)})

    return [Route("/config", config, methods=["GET"])]


def _keys(
    table: Mapping[str, Any], default: Mapping[str, Any], path: str
) -> Iterator[dict[str, Any]]:
    """Yield each key with its dotted path; a list of tables is one value."""
    for name, value in table.items():
        below = default.get(name)
        if isinstance(value, Mapping) and value:
            inner = below if isinstance(below, Mapping) else {}
            yield from _keys(value, inner, f"{path}{name}.")
        else:
            is_default = name in default and below == value
            yield {"key": path + name, "value": value, "is_default": is_default}
