"""How often a property is tried: a few times with every change, many times in a soak."""

from typing import Final

from hypothesis import settings

_IN_A_SOAK: Final = 30


def examples(count: int, *, in_soak: int | None = None) -> int:
    """Return ``max_examples`` for a property that needs another count than the profile's."""
    if settings.get_current_profile_name() != "soak":
        return count
    return count * _IN_A_SOAK if in_soak is None else in_soak
