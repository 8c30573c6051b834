"""Settings of Python's garbage collector for a node.

Batches and requests are freed by reference count, and cycles are rare, so collections are too. A
collection holds the whole process, whichever thread begins it, for about 8 ms per 100,000 objects
that it looks at: requests of 190,000 partitions make a million. So the middle generation is kept
small (a collection of it, with a million objects, held the loop for 60 to 100 ms).
"""

import gc
from typing import Final

YOUNG_OBJECTS: Final = 50_000
"""Objects made, less those freed, from one collection of the young ones to the next."""
YOUNG_COLLECTIONS: Final = 2
"""Collections of the young objects before one that looks at their survivors, too."""
MIDDLE_COLLECTIONS: Final = 100
"""Collections of those survivors before one of all objects is considered."""


def enable_collector() -> None:
    """Set it up and turn it on; what is imported by now stays and is never looked at."""
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, YOUNG_COLLECTIONS, MIDDLE_COLLECTIONS)
    gc.enable()
