"""Outcomes of a property in a protocol, and their words in docs/fidelity.md."""

from dataclasses import dataclass

from tests.interop.fidelity.samples import PROTOCOLS


@dataclass(frozen=True)
class Kept:
    """The protocol has the property: its ``field`` has the value that was sent."""

    field: str

    def __str__(self) -> str:
        return f"kept: {self.field}"


@dataclass(frozen=True)
class Mapped:
    """Another ``field`` has what was sent, or ``value``."""

    field: str
    value: str = ""

    def __str__(self) -> str:
        return f"mapped: {self.field}{f' = `{self.value}`' if self.value else ''}"


@dataclass(frozen=True)
class Cannot:
    """No field has what was sent, ``because``; ``field`` has ``value``, where it is given."""

    because: str
    field: str = ""
    value: str = ""

    def __str__(self) -> str:
        return f"cannot, because {self.because}"


Outcome = Kept | Mapped | Cannot


@dataclass(frozen=True)
class Cell:
    """Property in a protocol: how its clients see it, and how they send it.

    ``sent``: by which field, where it is another one. ``unsent``: why they cannot.
    """

    seen: Outcome
    sent: str = ""
    unsent: str = ""

    def __str__(self) -> str:
        if self.unsent and isinstance(self.seen, Cannot):
            return str(self.seen)
        if self.unsent:
            return f"{self.seen}; cannot be sent, because {self.unsent}"
        return f"{self.seen}; sent as {self.sent}" if self.sent else str(self.seen)


@dataclass(frozen=True)
class Pair:
    """Outcome of one sender's messages at one receiver."""

    sender: str
    receiver: str
    seen: Outcome


@dataclass(frozen=True)
class Row:
    """Property in all protocols, in the order of ``PROTOCOLS``; pairs that differ from that."""

    name: str
    cells: tuple[Cell, Cell, Cell, Cell]
    pairs: tuple[Pair, ...] = ()

    def cell(self, protocol: str) -> Cell:
        """Return the cell of a protocol."""
        return self.cells[PROTOCOLS.index(protocol)]

    def outcome(self, sender: str, receiver: str) -> Outcome:
        """Return the outcome of a sender's messages at a receiver."""
        for pair in self.pairs:
            if (pair.sender, pair.receiver) == (sender, receiver):
                return pair.seen
        return self.cell(receiver).seen
