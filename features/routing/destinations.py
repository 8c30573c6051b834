"""Destinations of bindings, each with the number of its bindings."""

from features.routing.model import Destination


class Destinations(dict[Destination, int]):
    """Destinations in order of their first binding; several bindings may lead to one."""

    def add(self, destination: Destination) -> None:
        """Count one more binding."""
        self[destination] = self.get(destination, 0) + 1

    def remove(self, destination: Destination) -> None:
        """Count one binding less."""
        left = self[destination] - 1
        if left:
            self[destination] = left
        else:
            del self[destination]
