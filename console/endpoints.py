"""Listeners of adapters that a page may open, as the page's URL and its policy name them."""

import re
from typing import Final, NamedTuple

from gateway.admin_views import HasBrowserEndpoint

_NAME: Final = re.compile(r"([a-z0-9-]+\.)*[a-z0-9-]+", re.IGNORECASE)
"""Host of a Content Security Policy: a name or an IPv4 address (CSP3, host-part)."""


class PageEndpoint(NamedTuple):
    """Listener for a page: its ``origin`` for the policy, and its ``url``; both may be empty."""

    origin: str
    url: str


NO_ENDPOINT: Final = PageEndpoint("", "")


def endpoint_for(adapter: object, authority: str) -> PageEndpoint:
    """Return the listener that an adapter's page may open, under the name the page came by.

    ``authority``: the request's Host header. Nothing where the adapter has no such listener, and
    for an IPv6 address, which a policy cannot name.
    """
    found = adapter.browser_endpoint() if isinstance(adapter, HasBrowserEndpoint) else None
    host = re.sub(r":\d*$", "", authority.strip())
    if found is None or not _NAME.fullmatch(host):
        return NO_ENDPOINT
    origin = f"{found.scheme}://{host}:{found.port}"
    return PageEndpoint(origin, f"{origin}{found.path}")
