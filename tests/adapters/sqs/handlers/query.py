"""The Query protocol over plain HTTP."""

import asyncio
import http.client
import urllib.parse
from typing import NamedTuple

from tests.adapters.sqs.handlers.serving import Live

ANSWER_S_MAX = 60.0


class Answer(NamedTuple):
    """An HTTP answer."""

    status: int
    content_type: str
    text: str


async def get(live: Live, url: str, accept: str = "", **fields: str) -> Answer:
    """Return what is answered to GET with a query string; ``url`` is a queue's, or of the root."""
    return await asyncio.to_thread(_get, live.adapter.listener.port, url, accept, fields)


def _get(port: int, url: str, accept: str, fields: dict[str, str]) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_S_MAX)
    query = urllib.parse.urlencode(fields)
    path = urllib.parse.urlsplit(url).path or "/"
    headers = {"Accept": accept} if accept else {}
    try:
        connection.request("GET", f"{path}?{query}" if query else path, headers=headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        return Answer(answer.status, answer.headers["Content-Type"], text)
    finally:
        connection.close()
