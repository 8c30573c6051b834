"""The number of examples of a property: few with every change, many in a soak."""

from typing import Final

from hypothesis import settings

_IN_A_SOAK: Final = 30
_IN_UNIT_TESTS_MAX: Final = 10


def examples(count: int, *, in_soak: int | None = None) -> int:
    """Return ``max_examples`` for a property that needs another count than the profile's."""
    profile = settings.get_current_profile_name()
    if profile == "unit":
        return min(count, _IN_UNIT_TESTS_MAX)
    if profile != "soak":
        return count
    return count * _IN_A_SOAK if in_soak is None else in_soak
