"""Every interleaving of the model of shards is good, and every broken rule is found.

States of the variants in a run of the suite, 54,000 in all:

    a transfer, then a direct append       1 move 504, 2 moves 4,595; 1 crash 2,046; 1 pause 4,663
      the topic deleted meanwhile          and 1 move 1,963; and 1 crash 9,789
    a direct append, then a transfer       1 move 261
    two transfers                          1 move 7,475
    one transfer                           1 move and 1 crash 18,728
    one transfer to two shards             1 move 3,480; one of them in the source's log 367

In the soak: two transfers with a crash 40,438, with a pause 153,228, with 2 moves 203,113; one
transfer to two shards with a crash 28,161; a transfer and a direct append with a move and a pause
458,202 (76 s, 0.5 GB).
"""

from typing import Final, NamedTuple

import pytest

from tests.models.shard_state import Faults, Operation
from tests.models.shards import check_shards

TRANSFER: Final = Operation(is_transfer=True, targets=(1,))
TO_BOTH: Final = Operation(is_transfer=True, targets=(1, 2))
DIRECT: Final = Operation(is_transfer=False, targets=(1,))

ONE: Final = (TRANSFER,)
TWO: Final = (TRANSFER, TRANSFER)
MIXED: Final = (TRANSFER, DIRECT)
MOVE: Final = Faults(moves=1)
CRASH: Final = Faults(crashes=1)
PAUSE: Final = Faults(pauses=1)

APART: Final = (0, 1)
"""The owner of the source shard, and of the target."""
TARGETS_APART: Final = (0, 1, 1)
ONE_TARGET_BESIDE: Final = (0, 0, 1)

STATES_MAX: Final = 60_000
SOAK_STATES_MAX: Final = 1_000_000


class Variant(NamedTuple):
    """Owners, operations and faults to check."""

    owners: tuple[int, ...]
    operations: tuple[Operation, ...]
    faults: Faults


@pytest.mark.parametrize(
    ("variant", "states"),
    [
        (Variant(APART, (TRANSFER, DIRECT), Faults(moves=1)), 504),
        (Variant(APART, (TRANSFER, DIRECT), Faults(moves=2)), 4_595),
        (Variant(APART, (TRANSFER, DIRECT), Faults(crashes=1)), 2_046),
        (Variant(APART, (TRANSFER, DIRECT), Faults(pauses=1)), 4_663),
        (Variant(APART, (TRANSFER, DIRECT), Faults(moves=1, deletes=1)), 1_963),
        (Variant(APART, (TRANSFER, DIRECT), Faults(crashes=1, deletes=1)), 9_789),
        (Variant(APART, (DIRECT, TRANSFER), Faults(moves=1)), 261),
        (Variant(APART, (TRANSFER, TRANSFER), Faults(moves=1)), 7_475),
        (Variant(APART, (TRANSFER,), Faults(moves=1, crashes=1)), 18_728),
        (Variant(TARGETS_APART, (TO_BOTH,), Faults(moves=1)), 3_480),
        (Variant(ONE_TARGET_BESIDE, (TO_BOTH,), Faults(moves=1)), 367),
    ],
)
def test_every_interleaving_is_good(variant: Variant, states: int) -> None:
    """The count is exact: a rule that takes steps away by mistake is seen."""
    found = check_shards(*variant, states_max=STATES_MAX)
    assert str(found) == f"{states} states, none bad"


@pytest.mark.soak
@pytest.mark.parametrize(
    "variant",
    [
        Variant(APART, (TRANSFER, TRANSFER), Faults(crashes=1)),
        Variant(APART, (TRANSFER, TRANSFER), Faults(pauses=1)),
        Variant(APART, (TRANSFER, TRANSFER), Faults(moves=2)),
        Variant(APART, (TRANSFER, DIRECT), Faults(moves=1, pauses=1)),
        Variant(TARGETS_APART, (TO_BOTH,), Faults(crashes=1)),
    ],
)
def test_every_interleaving_of_larger_variants_is_good(variant: Variant) -> None:
    found = check_shards(*variant, states_max=SOAK_STATES_MAX)
    assert not found.problem, str(found)


@pytest.mark.parametrize(
    ("rule", "variant", "problem"),
    [
        ("writer not checked", Variant(APART, MIXED, PAUSE), "offset"),
        ("dead source not fenced", Variant(APART, MIXED, PAUSE), "offset"),
        ("restart keeps the epoch", Variant(APART, MIXED, CRASH), "two writers"),
        ("fenced node goes on", Variant(APART, ONE, Faults(moves=1, pauses=1)), "stuck"),
        ("not sealed", Variant(APART, MIXED, MOVE), "offset"),
        ("flipped before drained", Variant(APART, ONE, MOVE), "offset"),
        ("serves after the flip", Variant(APART, MIXED, MOVE), "offset"),
        ("loaded before the flip", Variant(APART, MIXED, MOVE), "offset"),
        ("acknowledged when enqueued", Variant(APART, ONE, CRASH), "lost"),
        ("local append overtakes", Variant(APART, TWO, MOVE), "operations as"),
        ("numbers start anew", Variant(APART, TWO, Faults(moves=2)), "lost"),
        ("sent before durable", Variant(APART, TWO, CRASH), "lost"),
        ("open intents forgotten", Variant(APART, ONE, CRASH), "stuck"),
        ("number apart from append", Variant(APART, ONE, MOVE), "applied 2 times"),
        ("numbers not compared", Variant(APART, ONE, Faults()), "applied 2 times"),
        ("gaps accepted", Variant(APART, TWO, Faults()), "lost"),
        ("pending double answered", Variant(APART, ONE, CRASH), "lost"),
        ("answered when enqueued", Variant(APART, ONE, CRASH), "lost"),
        ("direct overtakes", Variant(APART, MIXED, Faults()), "operations as"),
        ("ended after the first effect", Variant(TARGETS_APART, (TO_BOTH,), Faults()), "lost"),
        ("deleted topic written", Variant(APART, ONE, Faults(deletes=1)), "deleted topic"),
        ("deleted topic refused", Variant(APART, ONE, Faults(deletes=1)), "stuck"),
        ("unknown repeated", Variant(APART, ONE, CRASH), "applied 2 times"),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)  # fmt: skip
def test_a_broken_rule_is_found(rule: str, variant: Variant, problem: str) -> None:
    found = check_shards(*variant, broken_rules=(rule,), states_max=STATES_MAX)
    assert problem in found.problem, str(found)
    assert len(found.steps) <= 12, str(found)
