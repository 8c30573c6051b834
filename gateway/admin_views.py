"""Ports of adapters that show things of their own in the REST interface and the console."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable


class ViewQuery(NamedTuple):
    """Query for a view: at most ``limit`` rows from ``offset`` on, whose name has ``contains``.

    ``values`` are all query parameters.
    """

    values: Mapping[str, str]
    limit: int
    offset: int
    contains: str


View = Callable[[ViewQuery], dict[str, Any] | Awaitable[dict[str, Any]]]
Action = Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]


class AdminAction(NamedTuple):
    """Change that only administrators may make."""

    run: Action


@runtime_checkable
class HasAdminViews(Protocol):
    """Adapter with views below ``/v1/adapters/<adapter>/``; all run on the event loop.

    Their dicts become JSON. Each does a bounded amount of work at a time; one that has more to do
    is a coroutine. Errors: ``RequestError``, and of
    changes that another node carries out ``OutcomeUnknown``.
    """

    def admin_views(self) -> Mapping[str, View]:
        """Return the views by name; GET, for viewers."""
        ...

    def admin_actions(self) -> Mapping[str, Action | AdminAction]:
        """Return the changes by name, called with ``values`` of the body.

        POST, for operators; those that are an ``AdminAction`` for administrators only.
        """
        ...


class BrowserEndpoint(NamedTuple):
    """Listener of an adapter that a page of the console may open: ``ws`` or ``wss``, by port."""

    scheme: str
    port: int
    path: str


@runtime_checkable
class HasBrowserEndpoint(Protocol):
    """Adapter whose pages open one of its own listeners, under the page's host name.

    The page's template gets the URL as ``endpoint_url``, and the page's policy allows the origin.
    """

    def browser_endpoint(self) -> BrowserEndpoint | None:
        """Return the listener; None while there is none."""
        ...
