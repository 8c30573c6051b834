"""Durability claims: statements in the log that sequences were synced.

Data that is claimed to be synced and is missing is damage, not a torn tail.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from storage_adapters.formats.entry import KIND_CLOSE, EntryHeader
from storage_adapters.formats.segment import SEGMENT_HEADER_BYTES
from storage_adapters.segment_log.loading import Loaded, mapped
from storage_adapters.segment_log.scanning import Scan, later_entries


class Claim(NamedTuple):
    """Evidence that all sequences up to ``sequence`` were synced."""

    sequence: int
    why: str


def claims_inside(view: memoryview, loaded: Loaded, scan: Scan) -> Iterator[Claim]:
    """Yield the claims in the segment itself, from after its damaged place."""
    if loaded.trailer is not None:
        yield Claim(loaded.trailer.next_sequence - 1, "the segment was closed behind it")
    for at, entry in later_entries(view, loaded.header, scan.damage_at + 1):
        why = (
            "the stop was clean" if entry.kind == KIND_CLOSE else "an entry says it was synced"
        )
        yield Claim(entry.durable_sequence, f"{why} (position {at})")


def claims_of(loaded: Loaded, later: Sequence[Loaded]) -> Iterator[Claim]:
    """Yield the claims of later segments about this one.

    A later segment claims all sequences before it, so a claim is limited to the next segment's
    beginning. Damage in that segment's first entry is found when it is read itself.
    """
    chain = {loaded.header.number}
    end: int | None = None
    for other in later:
        if other.header.previous not in chain:
            continue
        chain.add(other.header.number)
        said = _testimony(loaded, other)
        if said is None:
            continue
        if end is None:
            if said.first_sequence is None:
                return
            end = said.first_sequence
        yield Claim(min(said.durable_sequence, end - 1), said.why)
        if said.is_enough:
            return


class _Testimony(NamedTuple):
    """Claim of a later segment: its first sequence (None: damaged), and what was synced before."""

    first_sequence: int | None
    durable_sequence: int
    why: str
    is_enough: bool = True


def _testimony(loaded: Loaded, other: Loaded) -> _Testimony | None:
    segment, name = other.segment, other.path.name
    assert segment is not None
    if other.header.incarnation > loaded.header.incarnation:
        first = other.header.first_sequence
        return _Testimony(first, first - 1, f"{name} was begun by a later start")
    if segment.trailer is not None:
        first = segment.trailer.first_sequence
        return _Testimony(first, first - 1, f"{name} was closed after it")
    entries = _entries(other)
    if not entries:
        return None
    first_at, first_entry = entries[0]
    known = first_entry.sequence if first_at == SEGMENT_HEADER_BYTES else None
    at, best = max(entries, key=lambda pair: pair[1].durable_sequence)
    why = f"{name}, position {at}, says it was synced"
    return _Testimony(known, best.durable_sequence, why, is_enough=False)


def _entries(other: Loaded) -> list[tuple[int, EntryHeader]]:
    with mapped(other.path) as view:
        return list(later_entries(view, other.header, SEGMENT_HEADER_BYTES))


def find_strays(loaded: Loaded, later: Sequence[Loaded]) -> list[Loaded]:
    """Return the later segments that are not linked to this one by ``previous`` numbers."""
    chain = {loaded.header.number}
    strays = []
    for other in later:
        if other.header.previous in chain:
            chain.add(other.header.number)
        else:
            strays.append(other)
    return strays


def is_after_closing(loaded: Loaded, stray: Loaded, next_sequence: int) -> bool:
    """Return whether ``stray`` proves that all of this segment was synced.

    In that case the segments between them, which had been closed too, were removed as obsolete.
    Otherwise both are left over from an unfinished recovery of a torn tail.
    """
    segment = stray.segment
    assert segment is not None
    if stray.header.incarnation > loaded.header.incarnation or segment.trailer is not None:
        return True
    return any(entry.durable_sequence >= next_sequence for _, entry in _entries(stray))
