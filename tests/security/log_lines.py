"""JSON log lines of a gateway, looked for by what they say."""

import json
from typing import Any

from tests.support.gateway import Gateway
from tests.support.waiting import wait_until


def logged(gateway: Gateway, event: str, **wanted: Any) -> list[dict[str, Any]]:
    """Return the lines of that event whose fields are the wanted ones."""
    lines = [line for line in gateway.lines if line.startswith("{")]
    found = [json.loads(line) for line in lines]
    return [
        line
        for line in found
        if line["event"] == event and all(line.get(key) == wanted[key] for key in wanted)
    ]


def wait_logged(gateway: Gateway, event: str, **wanted: Any) -> dict[str, Any]:
    """Return the first such line, as soon as it is there."""
    what = f"{event} {wanted}\n{gateway.tail()}"
    wait_until(lambda: bool(logged(gateway, event, **wanted)), within_s=30, what=what)
    return logged(gateway, event, **wanted)[0]
