"""Direct, fanout and random exchanges."""

from collections.abc import Callable
from typing import Final

from features.routing.destinations import Destinations
from features.routing.model import Binding, Message

Choose = Callable[[int], int]
"""Function that returns a random index below its argument."""


class DirectMap:
    """Bindings of a direct exchange: their key equals the message's routing key."""

    def __init__(self) -> None:
        self._by_key: dict[str, Destinations] = {}
        self.touched = 0

    def add(self, binding: Binding) -> None:
        """Add a binding."""
        self._by_key.setdefault(binding.routing_key, Destinations()).add(binding.destination)

    def remove(self, binding: Binding) -> None:
        """Remove a binding that is there."""
        destinations = self._by_key[binding.routing_key]
        destinations.remove(binding.destination)
        if not destinations:
            del self._by_key[binding.routing_key]

    def match(self, message: Message, found: Destinations) -> None:
        """Add the destinations that are bound by one of the message's routing keys."""
        for key in message.routing_keys:
            self.touched += 1
            if (destinations := self._by_key.get(key)) is not None:
                found.update(destinations)


class FanoutList:
    """Bindings of a fanout or recent-history exchange: every message matches."""

    def __init__(self) -> None:
        self._destinations = Destinations()
        self.touched = 0

    def add(self, binding: Binding) -> None:
        """Add a binding."""
        self._destinations.add(binding.destination)

    def remove(self, binding: Binding) -> None:
        """Remove a binding that is there."""
        self._destinations.remove(binding.destination)

    def match(self, message: Message, found: Destinations) -> None:
        """Add all destinations."""
        del message
        self.touched += len(self._destinations)
        found.update(self._destinations)


class RandomChoice:
    """Bindings of a random exchange: one of them gets the message, each with equal chance."""

    def __init__(self, choose: Choose) -> None:
        self._choose: Final = choose
        self._bindings: list[Binding] = []
        self._index: dict[Binding, int] = {}
        self.touched = 0

    def add(self, binding: Binding) -> None:
        """Add a binding."""
        self._index[binding] = len(self._bindings)
        self._bindings.append(binding)

    def remove(self, binding: Binding) -> None:
        """Remove a binding that is there; the last one takes its index."""
        index = self._index.pop(binding)
        last = self._bindings.pop()
        if last != binding:
            self._bindings[index] = last
            self._index[last] = index

    def match(self, message: Message, found: Destinations) -> None:
        """Add the destination of one binding."""
        del message
        if self._bindings:
            self.touched += 1
            index = self._choose(len(self._bindings))
            found.add(self._bindings[index].destination)
