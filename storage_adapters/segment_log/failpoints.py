"""Named steps at which a test can end the process or raise; without a test they do nothing."""

from collections.abc import Callable
from typing import Final

# In the order in which a settling round passes them.
STEPS: Final = (
    "settle.begun",  # a new file has its name
    "settle.written",  # all new files have their batches
    "settle.synced",  # all new files are on the disk, with their names
    "manifest.written",  # under its temporary name
    "manifest.synced",
    "manifest.renamed",  # the new state is in effect from here on
    "manifest.committed",  # the new manifest is on the disk
    "settle.switched",  # readers use the new files
    "settle.unlinked",  # one obsolete file is removed
    "settle.done",
)

_armed: dict[str, Callable[[], None]] = {}


def hit(step: str) -> None:
    """Run the action that a test has armed for this step."""
    if _armed:
        action = _armed.get(step)
        if action is not None:
            action()


def arm(step: str, action: Callable[[], None]) -> None:
    """Run ``action`` at a step, in the thread that reaches it."""
    assert step in STEPS
    _armed[step] = action
