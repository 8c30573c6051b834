"""Client of a running node's admin REST API, for the commands."""

import json
import os
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote, urlencode, urlsplit

from gateway.admin.token import read_token, read_url
from gateway.config.loader import load_settings
from gateway.config.settings import Settings
from gateway.errors import GatewayError

TIMEOUT_S: Final = 30


class NodeUnreachable(GatewayError):
    """Node that does not answer, or whose token cannot be read."""


class Refused(GatewayError):
    """Refusal by the node, with the node's text."""


def settings_of(config: Path | None, assignments: list[str] | None) -> Settings:
    """Return the settings of the command line. Errors: ``InvalidSettings``."""
    return load_settings(file=config, assignments=assignments or (), environment=os.environ)


class AdminClient:
    """REST client with one request per call, within a ``namespace`` if one is given."""

    def __init__(self, url: str, token: str, *, namespace: str | None = None) -> None:
        self.url = url
        self._token = token
        self._query = {} if namespace is None else {"namespace": namespace}

    @classmethod
    def of(cls, settings: Settings, *, namespace: str | None = None) -> Self:
        """Return a client of the node with these settings. Errors: ``NodeUnreachable``."""
        data_dir = settings.node.data_dir
        try:
            token = read_token(data_dir)
            url = read_url(data_dir)
        except OSError as error:
            msg = (
                f"no token in {data_dir.absolute()} ({error.strerror or 'it is empty'}): has "
                "`headgate serve` run there? Name its folder with --set node.data_dir=..."
            )
            raise NodeUnreachable(msg) from error
        return cls(url or f"http://{settings.admin.bind}", token, namespace=namespace)

    def get(self, *path: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the answer to ``GET /v1/<path>``. Errors: as ``send``."""
        return self.send("GET", *path, query=query)

    def send(
        self,
        method: str,
        *path: str,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Return the answer's JSON object. Errors: ``NodeUnreachable``, ``Refused``."""
        target = "/v1/" + "/".join(quote(part, safe="") for part in path)
        asked = {**self._query, **(query or {})}
        if asked:
            target += "?" + urlencode(asked)
        address = urlsplit(self.url)
        connection = HTTPConnection(address.hostname or "", address.port, timeout=TIMEOUT_S)
        headers = {"authorization": f"Bearer {self._token}"}
        try:
            connection.request(
                method, target, None if body is None else json.dumps(body), headers
            )
            response = connection.getresponse()
            status, text = response.status, response.read()
        except (OSError, HTTPException) as error:
            msg = f"no node answers at {self.url}: {error}; is `headgate serve` running?"
            raise NodeUnreachable(msg) from error
        finally:
            connection.close()
        return _answer(status, text)


def _answer(status: int, text: bytes) -> dict[str, Any]:
    try:
        content = json.loads(text) if text else {}
    except ValueError:
        content = {}
    if status >= 400:  # noqa: PLR2004 - where HTTP's errors begin
        kind = content.get("error", f"HTTP {status}")
        raise Refused(f"{kind}: {content.get('message', text[:200].decode(errors='replace'))}")
    return dict(content)
