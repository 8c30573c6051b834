"""Routers of all namespaces, with one bound on the routes that they remember."""

import random
from collections.abc import Callable

from features.routing.model import Exchange
from features.routing.route_memo import RouteMemo
from features.routing.router import Router
from gateway.exchanges.standard import STANDARD


class Routers:
    """Routers by namespace. One without changes is made when it is asked for.

    ``prepare`` returns a standard exchange of a namespace as its policies want it.
    """

    def __init__(
        self, routes_bytes_max: int, prepare: Callable[[str, Exchange], Exchange]
    ) -> None:
        self.memo = RouteMemo(routes_bytes_max)
        self._prepare = prepare
        self._changed: dict[str, Router] = {}
        self._unchanged: dict[str, Router] = {}  # one at most

    @property
    def namespaces(self) -> list[str]:
        """Namespaces whose router has been changed."""
        return list(self._changed)

    def changed(self, namespace: str) -> Router | None:
        """Return a namespace's router, None for one without changes."""
        return self._changed.get(namespace)

    def of(self, namespace: str) -> Router:
        """Return a namespace's router; of those without changes only the last is kept."""
        router = self._changed.get(namespace, self._unchanged.get(namespace))
        if router is None:
            router = Router(choose=random.randrange, memo=self.memo)
            for exchange in STANDARD:
                router.put(self._prepare(namespace, exchange))
            self.forget_unchanged()
            self._unchanged = {namespace: router}
        return router

    def to_change(self, namespace: str) -> Router:
        """Return a namespace's router, which is kept from now on."""
        router = self._changed[namespace] = self.of(namespace)
        self._unchanged.pop(namespace, None)
        return router

    def forget_unchanged(self) -> None:
        """Forget the router without changes."""
        for router in self._unchanged.values():
            router.forget_routes()
        self._unchanged = {}
