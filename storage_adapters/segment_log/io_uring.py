"""Linux io_uring, for one chain of writes and a sync at a time, without a thread of this process.

A chain is handed to the kernel by one call that does not wait; its threads do the steps, each
after the one before it, and the ring's descriptor becomes readable. This module is the kernel's
interface (io_uring(7), <linux/io_uring.h>) by way of ctypes, on x86-64 alone: the two rings are
shared with the kernel, and other processors would need fences that Python does not have.
"""

import ctypes
import errno
import mmap
import os
import platform
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

_SETUP, _ENTER = 425, 426  # system calls
_SQES_AT: Final = 0x1000_0000  # where the submission entries are mapped from
_GETEVENTS: Final = 1
# One mapping for both rings (5.4), completions are never dropped (5.5), OP_WRITE is there (5.6).
_FEATURES: Final = 0b1 | 0b10 | 0b1000

OP_FSYNC, OP_WRITE = 3, 23
_LINK: Final = 1 << 2  # the next entry begins when this one has succeeded (a write: in full)
_DATASYNC: Final = 1

_PARAMS_BYTES: Final = 120
_FEATURES_AT, _SQ_AT, _CQ_AT = 20, 40, 80
_OFFSETS: Final = struct.Struct("<7I")  # head, tail, mask, entries, -, -, array or completions
_CQ_OFFSETS: Final = struct.Struct("<6I")
_SQE: Final = struct.Struct("<BBHiQQIIQ24x")
_CQE: Final = struct.Struct("<QiI")
_WORD: Final = 4
_WORD_MAX: Final = 0xFFFF_FFFF

CHAIN_MAX: Final = 8

# A submission takes 4 us, so it keeps the interpreter's lock; waiting calls release it.
_syscall: Final = ctypes.PyDLL(None, use_errno=True).syscall
_waiting_syscall: Final = ctypes.CDLL(None).syscall
for _function in (_syscall, _waiting_syscall):
    _function.restype = ctypes.c_long
    _function.argtypes = [ctypes.c_long] * 7


class Step(NamedTuple):
    """One step of a chain, made by ``write`` and ``sync``. It keeps the buffer alive."""

    op: int
    fd: int
    position: int = 0
    address: int = 0
    size_bytes: int = 0
    flags: int = 0
    data: bytearray | memoryview | None = None


def write(fd: int, data: bytearray | memoryview, position: int) -> Step:
    """Return a write step for writable memory, which must not be resized until it is done."""
    return Step(OP_WRITE, fd, position, _address(data), len(data), 0, data)


def sync(fd: int) -> Step:
    """Return a step that calls fdatasync."""
    return Step(OP_FSYNC, fd, flags=_DATASYNC)


# Buffers that the kernel may still read must outlive a ring that is dropped early.
_read_by_the_kernel: Final[dict[int, Sequence[Step]]] = {}


class IoUring:
    """One ring. ``fd`` is readable while ``results`` has completions to collect."""

    def __init__(self) -> None:
        """Errors: ``OSError`` when the system has no io_uring or forbids it."""
        if platform.machine() != "x86_64" or platform.system() != "Linux":
            raise OSError(errno.ENOSYS, "io_uring is used on Linux on x86-64 only")
        params = bytearray(_PARAMS_BYTES)
        self.fd: Final = _call(_SETUP, CHAIN_MAX, _address(params))
        (features,) = struct.unpack_from("<I", params, _FEATURES_AT)
        if features & _FEATURES != _FEATURES:
            os.close(self.fd)
            raise OSError(errno.ENOSYS, "the kernel's io_uring is older than Linux 5.6")
        _, sq_tail, _, sq_entries, _, _, array = _OFFSETS.unpack_from(params, _SQ_AT)
        cq_head, cq_tail, cq_mask, cq_entries, _, cqes = _CQ_OFFSETS.unpack_from(params, _CQ_AT)
        size_bytes = max(array + sq_entries * _WORD, cqes + cq_entries * _CQE.size)
        try:
            self._memory = _map(self.fd, size_bytes, 0)
            self._entries = _map(self.fd, sq_entries * _SQE.size, _SQES_AT)
        except OSError:
            os.close(self.fd)
            raise
        self._words = memoryview(self._memory).cast("I")
        self._sq_tail_at, self._array_at = sq_tail // _WORD, array // _WORD
        self._cq_head_at, self._cq_tail_at = cq_head // _WORD, cq_tail // _WORD
        self._cqes_at = cqes
        self._cq_mask = self._words[cq_mask // _WORD]
        self._results: list[int] = []
        self._missing = 0

    def begin(self, chain: Sequence[Step]) -> bool:
        """Submit a chain of at most ``CHAIN_MAX`` steps; one at a time.

        False when the kernel does not accept it; no step runs then.
        """
        assert not self._missing
        assert len(chain) <= CHAIN_MAX
        words = self._words
        tail = words[self._sq_tail_at]
        last = len(chain) - 1
        for number, step in enumerate(chain):
            link = _LINK if number < last else 0
            entry = (step.op, link, 0, step.fd, step.position, step.address, step.size_bytes)
            _SQE.pack_into(self._entries, number * _SQE.size, *entry, step.flags, number)
            words[self._array_at + (tail + number) % CHAIN_MAX] = number
        _read_by_the_kernel[id(self)] = chain
        self._results = [0] * len(chain)
        words[self._sq_tail_at] = (tail + len(chain)) & _WORD_MAX
        taken = max(int(_syscall(_ENTER, self.fd, len(chain), 0, 0, 0, 0)), 0)
        self._missing = taken
        is_begun: bool = taken == len(chain)
        if not is_begun:
            words[self._sq_tail_at] = (tail + taken) & _WORD_MAX
            self.wait()
        return is_begun

    def results(self) -> list[int] | None:
        """Return each step's result as of a system call; None until all are done."""
        words, head = self._words, self._words[self._cq_head_at]
        tail = words[self._cq_tail_at]
        while head != tail:
            at = self._cqes_at + (head & self._cq_mask) * _CQE.size
            number, result, _ = _CQE.unpack_from(self._memory, at)
            self._results[number] = result
            self._missing -= 1
            head = (head + 1) & _WORD_MAX
        words[self._cq_head_at] = head
        if self._missing:
            return None
        _read_by_the_kernel.pop(id(self), None)
        return self._results

    def wait(self) -> None:
        """Wait until no chain is under way."""
        while self._missing and self.results() is None:
            _waiting_syscall(_ENTER, self.fd, 0, self._missing, _GETEVENTS, 0, 0)
        _read_by_the_kernel.pop(id(self), None)

    def close(self) -> None:
        """Close the ring. No chain may be under way."""
        assert not self._missing
        self._words.release()
        self._memory.close()
        self._entries.close()
        os.close(self.fd)


def _call(number: int, *arguments: int) -> int:
    padded = [*arguments, *[0] * (6 - len(arguments))]
    result = int(_syscall(number, *padded))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"io_uring: {os.strerror(code)}")
    return result


def _map(fd: int, size_bytes: int, offset: int) -> mmap.mmap:
    mapping = mmap.mmap(fd, size_bytes, flags=mmap.MAP_SHARED, offset=offset)
    mapping.madvise(mmap.MADV_DONTFORK)
    return mapping


def _address(data: bytearray | memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(data))
