"""Client of a running node's admin REST API, for the commands.

It needs no library, so that a command starts quickly.
"""

import json
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote, urlencode, urlsplit

from gateway.admin.token import read_token, read_url
from gateway.errors import GatewayError

TIMEOUT_S: Final = 30
_SCHEMES: Final = ("http", "https")


class NodeUnreachable(GatewayError):
    """Node that does not answer, or whose token cannot be read."""


class Refused(GatewayError):
    """Refusal by the node, with the node's text. ``kind``: the name of its error, if any."""

    def __init__(self, text: str, *, kind: str = "") -> None:
        super().__init__(text)
        self.kind = kind


class AdminClient:
    """REST client with one request per call, within a ``namespace`` if one is given."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        namespace: str | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self.url = url
        self.timeout_s = timeout_s
        self._token = token
        self._query = {} if namespace is None else {"namespace": namespace}

    @classmethod
    def local(cls, data_dir: Path, bind: str, *, namespace: str | None = None) -> Self:
        """Return a client of the node with this data directory. Errors: ``NodeUnreachable``."""
        try:
            token = read_token(data_dir)
            url = read_url(data_dir)
        except OSError as error:
            msg = (
                f"no token in {data_dir.absolute()} ({error.strerror or 'it is empty'}): has "
                "`headgate serve` run there? Name its folder with --set node.data_dir=..., or "
                "another machine's node with --url and --token-file"
            )
            raise NodeUnreachable(msg) from error
        return cls(url or f"http://{bind}", token, namespace=namespace)

    @classmethod
    def remote(cls, url: str, token_file: Path | None, *, namespace: str | None = None) -> Self:
        """Return a client of the node at a URL. Errors: ``NodeUnreachable``."""
        parts = urlsplit(url)
        if parts.scheme not in _SCHEMES or not parts.hostname:
            raise NodeUnreachable(f"{url!r} is no address like http://broker.example:9644")
        if token_file is None:
            msg = (
                f"no token for {url}: name a file that holds it, --token-file FILE or "
                "HEADGATE_TOKEN_FILE; it is what DATA_DIR/admin.token of the node holds"
            )
            raise NodeUnreachable(msg)
        return cls(url, read_token_file(token_file), namespace=namespace)

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
        address = urlsplit(self.url)
        target = f"{address.path.rstrip('/')}/v1/" + "/".join(
            quote(part, safe="") for part in path
        )
        asked = {**self._query, **(query or {})}
        if asked:
            target += "?" + urlencode(asked)
        connect = HTTPSConnection if address.scheme == "https" else HTTPConnection
        connection = connect(address.hostname or "", address.port, timeout=self.timeout_s)
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


def read_token_file(file: Path) -> str:
    """Return the token in a file. Errors: ``NodeUnreachable``."""
    try:
        token = file.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise NodeUnreachable(f"{file}: {getattr(error, 'strerror', None) or error}") from error
    if not token or not token.isprintable():
        raise NodeUnreachable(f"{file}: holds no token")
    return token


def _answer(status: int, text: bytes) -> dict[str, Any]:
    try:
        content = json.loads(text) if text else {}
    except ValueError:
        content = {}
    if status >= 300:  # noqa: PLR2004 - redirects are not followed: the token is for one address
        kind = content.get("error", f"HTTP {status}")
        said = content.get("message", text[:200].decode(errors="replace"))
        raise Refused(f"{kind}: {said}", kind=kind)
    return dict(content)
