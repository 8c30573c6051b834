"""Memory and processor time of a running process, from Linux's /proc."""

import os
from pathlib import Path
from typing import Final

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    """Return the bytes of memory that the process occupies now."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES


def cpu_s(pid: int) -> float:
    """Return the processor seconds, user and system, that the process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def peak_bytes(pid: int) -> int:
    """Return the most memory in bytes that the process has occupied so far."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (peak,) = [line for line in lines if line.startswith("VmHWM:")]
    return int(peak.split()[1]) * 1024


def forget_peak(pid: int) -> None:
    """Let ``peak_bytes`` begin anew with what the process occupies now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
