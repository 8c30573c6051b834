"""kill -9 again and again: how often, when, and into which segments."""

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import pytest

from tests.support.waiting import wait_until

_PROGRESS_S_MAX: Final = 180
_SOAK_S_MAX: Final = 3_600
_MORE_KILLS: Final = 3  # times as many at most, until what a kill is to meet was met


def how_often(kills: int, soak_kills: int) -> pytest.MarkDecorator:
    """Give a test its ``kills``: as many as a run of the suite has time for, and a soak's."""
    few = pytest.param(kills, id="often")
    marks = [pytest.mark.soak, pytest.mark.timeout(_SOAK_S_MAX)]
    return pytest.mark.parametrize(
        "kills", [few, pytest.param(soak_kills, id="soak", marks=marks)]
    )


def moments(
    kills: int,
    progress: Callable[[], float],
    *,
    apart_max: int,
    within_s: float = _PROGRESS_S_MAX,
    is_met: Callable[[], bool] = lambda: True,
) -> Iterator[str]:
    """Yield a name for each kill when it is time: ``progress`` grew by a random number.

    ``apart_max`` bounds that number. ``progress`` raises what a load has found wrong meanwhile.
    ``is_met`` says whether the kills have met what they are for: until then more of them follow.
    """
    chooser = random.SystemRandom()
    for kill in range(_MORE_KILLS * kills):
        if kill >= kills and is_met():
            return
        target = progress() + chooser.randrange(1, apart_max)
        name = f"kill {kill + 1} of {kills}"
        reached = partial(_is_at, progress, target)
        wait_until(reached, within_s=within_s, what=f"progress before {name}")
        yield name


def small_segments(flush: str, segment_bytes: int) -> dict[str, object]:
    """Return settings of a log whose segments are so small that kills meet their changes too."""
    return {
        "storage.flush": flush,
        "storage.segment_bytes": segment_bytes,
        "storage.reserve_bytes": segment_bytes // 2,
    }


def _is_at(progress: Callable[[], float], target: float) -> bool:
    return progress() >= target
