"""Pages of a file in the page cache, found without a read, which would bring more of it in."""

import ctypes
import mmap
from pathlib import Path


def resident_share(path: Path) -> float:
    """Return how much of the file has pages in memory, 0 to 1 (mincore(2)). No empty files."""
    with (
        path.open("r+b") as file,
        mmap.mmap(file.fileno(), 0, flags=mmap.MAP_SHARED, prot=_BOTH) as pages,
    ):
        count = -(-len(pages) // mmap.PAGESIZE)
        found = (ctypes.c_ubyte * count)()
        view = ctypes.c_ubyte.from_buffer(pages)
        libc = ctypes.CDLL(None, use_errno=True)
        failed = libc.mincore(
            ctypes.c_void_p(ctypes.addressof(view)), ctypes.c_size_t(len(pages)), found
        )
        del view  # else the mapping cannot be closed
        if failed:
            raise OSError(ctypes.get_errno(), "mincore")
        return sum(one & 1 for one in found) / count


_BOTH = mmap.PROT_READ | mmap.PROT_WRITE  # ctypes takes the address of what can be written
