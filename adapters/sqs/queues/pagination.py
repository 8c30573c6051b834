"""Pagination of lists.

A page begins after the name in its token, so creating or deleting queues meanwhile neither repeats
nor hides others. A token is valid for its own request only, and does not expire.
"""

import base64
import binascii
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from adapters.sqs.errors import invalid_parameter
from gateway.queues.manager import Queue

RESULTS_MAX: Final = 1_000
_TOKEN_CHARS_MAX: Final = 4_096


def take_page(
    queues: Iterator[Queue], params: Mapping[str, Any], scope: Sequence[str]
) -> tuple[list[Queue], str | None]:
    """Return the next queues and the token of the page after them, None at the end.

    ``queues`` are sorted by name. ``scope`` identifies the list. There is a token only if
    MaxResults is given. Errors: ``InvalidParameterValue``.
    """
    wanted = params.get("MaxResults")
    count = RESULTS_MAX if wanted is None else wanted
    if not 1 <= count <= RESULTS_MAX:
        msg = (
            "Value for parameter MaxResults is invalid. "
            f"Reason: MaxResults must be an integer between 1 and {RESULTS_MAX}."
        )
        raise invalid_parameter(msg)
    token = params.get("NextToken")
    if token:
        after = _parse_token(token, scope)
        queues = (queue for queue in queues if queue.topic.name.name > after)
    page = list(islice(queues, count + 1))
    if len(page) <= count:
        return page, None
    del page[count:]
    if wanted is None:
        return page, None
    return page, _format_token(page[-1].topic.name.name, scope)


def _format_token(after: str, scope: Sequence[str]) -> str:
    return base64.b64encode(json.dumps([*scope, after]).encode()).decode()


def _parse_token(token: str, scope: Sequence[str]) -> str:
    try:
        found = json.loads(base64.b64decode(token[:_TOKEN_CHARS_MAX], validate=True))
    except (ValueError, binascii.Error, RecursionError):
        found = None
    if not isinstance(found, list) or not found or not isinstance(found[-1], str):
        raise invalid_parameter("Invalid or expired next token.")
    after: str = found[-1]
    if found[:-1] != list(scope):
        msg = (
            "Invalid NextToken value. If you are passing in NextToken, "
            "you must not change the other request parameters."
        )
        raise invalid_parameter(msg)
    return after
