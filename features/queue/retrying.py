"""Rules for a message that comes back: whether it may go again, and after which delay.

A delivery ends by an acknowledgement, or it has failed (released, or its lease or its holder has
ended), or the message was given back without having failed. Both of the latter count as attempts;
only failed ones count for the delivery limit.
"""

from enum import Enum

from features.queue.model import ATTEMPTS, DELIVERY_LIMIT, NO_LIMIT, Dead, Policy, RetryOn
from features.queue.states import Requeued


class DeliveryEnd(Enum):
    """End of a delivery that was not acknowledged. The value: flags in the journal."""

    FAILED = 0
    UNSEEN = 1  # the attempt does not count
    SPARED = 2  # the attempt counts, and has not failed

    def attempts(self, attempt: int) -> int:
        """Return the attempts of a message after that delivery."""
        return attempt - (self is DeliveryEnd.UNSEEN)

    def spared(self, spared: int) -> int:
        """Return the deliveries that have not failed, after that delivery."""
        return spared + (self is DeliveryEnd.SPARED)


def is_beyond_limit(policy: Policy, failed_count: int) -> bool:
    """Return whether a message has failed too often to be delivered again."""
    return policy.delivery_limit != NO_LIMIT and failed_count > policy.delivery_limit


def retry_delay_ms(
    policy: Policy, ending: DeliveryEnd, attempts: int, failed_count: int
) -> int:
    """Return the delay of a message that comes back; 0 for at once.

    It grows with the number of its deliveries of that kind.

    >>> policy = Policy(retry_delay_ms=100, retry_delay_ms_max=250)
    >>> [retry_delay_ms(policy, DeliveryEnd.FAILED, count, count) for count in (1, 2, 3)]
    [100, 200, 250]
    """
    if not policy.retry_delay_ms or ending is DeliveryEnd.UNSEEN:
        return 0
    has_failed = ending is DeliveryEnd.FAILED
    if policy.retry_delay_on is (RetryOn.RETURNED if has_failed else RetryOn.FAILED):
        return 0
    count = failed_count if has_failed else attempts
    delay_ms = policy.retry_delay_ms * count
    return min(delay_ms, policy.retry_delay_ms_max) if policy.retry_delay_ms_max else delay_ms


def reason_to_die(policy: Policy, back: Requeued) -> str | None:
    """Return why a message is dead that would be delivered again; None: it is not."""
    if 0 < policy.attempts_max <= back.attempts:
        return ATTEMPTS
    # Its move was lost in a crash, or the limit is a new one.
    return DELIVERY_LIMIT if is_beyond_limit(policy, back.attempts - back.spared) else None


def may_go_again(policy: Policy, dead: Dead) -> bool:
    """Return whether a limit by which a message died is raised, or is there no more."""
    if dead.reason == ATTEMPTS:
        return not 0 < policy.attempts_max <= dead.attempts
    return dead.reason == DELIVERY_LIMIT and policy.delivery_limit == NO_LIMIT
