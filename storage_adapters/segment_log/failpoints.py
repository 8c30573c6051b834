"""Named steps at which a test may end the process, or fail; nothing happens unless it asks."""

from collections.abc import Callable
from typing import Final

# In the order in which a settling round passes them.
STEPS: Final = (
    "settle.begun",  # a new file has its name
    "settle.written",  # all new files have their batches
    "settle.synced",  # and are on the disk, with their names
    "manifest.written",  # under its other name
    "manifest.synced",
    "manifest.renamed",  # the new state counts from here on
    "manifest.committed",  # on the disk
    "settle.switched",  # readers use the new files
    "settle.unlinked",  # one file that does not count any more is gone
    "settle.done",
)

_armed: dict[str, Callable[[], None]] = {}


def hit(step: str) -> None:
    """Do what a test has armed for this step."""
    if _armed:
        action = _armed.get(step)
        if action is not None:
            action()


def arm(step: str, action: Callable[[], None]) -> None:
    """Have ``action`` run at a step, in whichever thread that is."""
    assert step in STEPS
    _armed[step] = action
