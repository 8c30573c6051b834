"""Patterns of LIKE: ``_`` for one character, ``%`` for any number of them."""

from collections.abc import Callable
from typing import Final

_ONE: Final = None  # in a segment, in place of a character


class _Segment:
    """Part of a pattern between two ``%``: characters, and places for any one character."""

    __slots__ = ("_characters", "_plain", "length")

    def __init__(self, characters: list[str | None]) -> None:
        self._characters = characters
        self.length = len(characters)
        is_plain = all(one is not _ONE for one in characters)
        self._plain = "".join(one or "" for one in characters) if is_plain else None

    def is_at(self, text: str, index: int) -> bool:
        """Say whether the segment is in a text at an index."""
        if self._plain is not None:
            return text.startswith(self._plain, index)
        if index < 0 or index + self.length > len(text):
            return False
        return all(
            one is _ONE or one == text[index + offset]
            for offset, one in enumerate(self._characters)
        )

    def find(self, text: str, start: int) -> int:
        """Return the first index of the segment from ``start`` on, -1 if there is none."""
        if self._plain is not None:
            return text.find(self._plain, start)
        last = len(text) - self.length
        return next((at for at in range(start, last + 1) if self.is_at(text, at)), -1)


def compile_like(pattern: str, escape: str = "") -> Callable[[str], bool]:
    """Return the function that says whether a text matches a pattern.

    The escape character takes its special meaning from the character behind it; at the end of the
    pattern it stands for itself. The cost is bounded by the product of both lengths.
    """
    first, *middle = _segments(pattern, escape)
    if not middle:
        return lambda text: len(text) == first.length and first.is_at(text, 0)
    last = middle.pop()

    def matches(text: str) -> bool:
        end = len(text) - last.length
        if end < first.length or not first.is_at(text, 0) or not last.is_at(text, end):
            return False
        at = first.length
        for segment in middle:
            found = segment.find(text, at)
            if found < 0:
                return False
            at = found + segment.length
        return at <= end

    return matches


def _segments(pattern: str, escape: str) -> list[_Segment]:
    parts: list[list[str | None]] = [[]]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            parts[-1].append(next(characters, character))
        elif character == "%":
            parts.append([])
        else:
            parts[-1].append(_ONE if character == "_" else character)
    return [_Segment(part) for part in parts]
