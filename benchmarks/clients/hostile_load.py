"""Hostile clients of a protocol, as many packets as are asked for; prints the rate as JSON."""

import argparse
import json
import random
from typing import Final

from tests.support.hostile import PROTOCOLS, speech
from tests.support.hostile.throwing import Speech, throw
from tests.support.hostile.users import User

PREPARED: Final = 500  # connections whose words are made before time is taken


def main() -> None:
    """Send and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("protocol", choices=PROTOCOLS)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--packets", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--user", nargs=3, metavar=("NAME", "PASSWORD", "KEY"))
    chosen = parser.parse_args()
    said = speech(chosen.protocol, User(*chosen.user) if chosen.user else None)
    chooser = random.Random(chosen.seed)
    prepared = [said.words(chooser) for _ in range(PREPARED)]
    again = Speech(lambda one: one.choice(prepared), said.is_answered)
    thrown = throw(chosen.port, again, packets=chosen.packets, seed=chosen.seed)
    print(
        json.dumps(
            {
                "packets": thrown.packets,
                "connections": thrown.connections,
                "answered": thrown.answered,
                "rate": thrown.packets / thrown.seconds,
            }
        )
    )


if __name__ == "__main__":
    main()
