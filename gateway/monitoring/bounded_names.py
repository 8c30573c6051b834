"""Values by name for a bounded number of names; all further names share one value."""

from collections.abc import Callable, Collection, Hashable
from fnmatch import fnmatchcase
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedNames(Generic[K, V]):
    """Values of the first ``names_max`` keys, and ``others`` for the rest.

    With ``patterns`` (``*``, ``?`` and ``[]`` as in file names) only names that match one get a
    value of their own. A key keeps its value until ``forget``, so that counters in it only grow.
    """

    def __init__(
        self, make: Callable[[], V], *, names_max: int, patterns: Collection[str] = ()
    ) -> None:
        self.named: dict[K, V] = {}
        self.others = make()
        self._make = make
        self._names_max = names_max
        self._patterns = tuple(patterns)

    def get(self, key: K, name: str) -> V:
        """Return the value of a key, made at its first use. ``name`` is what patterns match."""
        found = self.named.get(key)
        if found is not None:
            return found
        if len(self.named) >= self._names_max or not self.allows(name):
            return self.others
        found = self.named[key] = self._make()
        return found

    def allows(self, name: str) -> bool:
        """Return whether a name may have a value of its own."""
        if not self._patterns:
            return True
        return any(fnmatchcase(name, pattern) for pattern in self._patterns)

    def forget(self, key: K) -> V | None:
        """Free the key's place for another one; return its value."""
        return self.named.pop(key, None)
