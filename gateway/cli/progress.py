"""Progress bar of commands that last, on standard error."""

import sys
from typing import Final

MIB: Final = 1_048_576
_BAR_CELLS: Final = 30


class Progress:
    """Progress bar, on a terminal only.

    ``unit`` names what is counted; bytes, shown as MiB, unless it is given.
    """

    def __init__(self, total: int, *, unit: str = "") -> None:
        self._total = total
        self._done = 0
        self._unit = unit
        self._shows = sys.stderr.isatty() and total > 0

    def add(self, amount: int) -> None:
        """Advance the bar."""
        self.show(self._done + amount)

    def show(self, done: int) -> None:
        """Show how much is done."""
        self._done = done
        if self._shows:
            cells = min(_BAR_CELLS * self._done // self._total, _BAR_CELLS)
            bar = "#" * cells + "." * (_BAR_CELLS - cells)
            said = f"{self._text(self._done)} of {self._text(self._total)}"
            sys.stderr.write(f"\r[{bar}] {said} ")
            sys.stderr.flush()

    def end(self) -> None:
        """End the bar's line."""
        if self._shows:
            sys.stderr.write("\n")

    def _text(self, amount: int) -> str:
        return f"{amount:,} {self._unit}" if self._unit else mib(amount)


def mib(size_bytes: int) -> str:
    """Return a size in MiB as text.

    >>> mib(1_572_864)
    '1.5 MiB'
    """
    return f"{size_bytes / MIB:,.1f} MiB"
