"""Freed megabytes are kept, within a bound: a read does not fault its buffer in anew."""

import subprocess
import sys

_PROGRAM = """
import resource
from gateway.allocator import keep_freed_memory
{tune}
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    bytearray(1 << 20).find(b"x")
before = faults()
for _ in range(50):
    kept = [bytearray(1 << 20) for _ in range(6)]
    del kept
print(faults() - before)
"""


def page_faults(tune: str) -> int:
    program = [sys.executable, "-c", _PROGRAM.format(tune=tune)]
    found = subprocess.run(program, capture_output=True, text=True, check=True)
    return int(found.stdout)


def test_buffers_of_a_mebibyte_are_not_faulted_in_each_time() -> None:
    assert page_faults("keep_freed_memory()") * 4 < page_faults("")
