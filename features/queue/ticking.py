"""What is due in a lane: leases are over, delays too, moves to the dead letters are tried again."""

from features.queue.ahead import Ahead
from features.queue.model import Dead
from features.queue.open_messages import OpenMessages
from features.queue.returning import Returning
from features.queue.states import Back, Dying, Flight, Stretch


def do_due(
    messages: OpenMessages,
    ahead: Ahead,
    returning: Returning,
    now_unix_ms: int,
    *,
    messages_max: int,
) -> None:
    """Do it, until so many messages are reached; the effects are ``returning``'s."""
    effects = returning.effects
    left = messages_max
    while left > 0 and (item := messages.timers.pop(now_unix_ms)) is not None:
        left -= 1
        if isinstance(item, Flight):
            left -= item.left - 1
            returning.come_back(item, messages.members(item))
        elif isinstance(item, Dying):
            dead = Dead(item.offset, item.attempts, item.reason, is_again=True)
            effects.dead.append(dead)
        else:
            effects.wake = True
            if isinstance(item, Back):
                messages.ripen(item)
            elif isinstance(item, Stretch):
                _appear(item, messages, ahead)


def _appear(stretch: Stretch, messages: OpenMessages, ahead: Ahead) -> None:
    ahead.appear(stretch)
    if messages.lines.keeps_order(stretch.key):
        messages.lines.offer_key(stretch.key)
    else:
        messages.lines.add_stretch(stretch)
