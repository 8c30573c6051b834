"""Gateway that kills itself in the end of a transaction.

    python -m tests.crash.transaction_gateway serve ...

``HEADGATE_TEST_KILL_AT`` is ``before`` (the end is decided, nothing is appended), ``appended`` (it
is with the log), or ``durable`` (it is kept, the client has no answer yet).
``HEADGATE_TEST_KILL_AFTER`` ends pass before that. Without the first, nothing is killed.
"""

import os
import signal
import sys
from itertools import count
from typing import Any

from gateway.atomic_append import AtomicAppend
from gateway.cli.app import main
from gateway.transactions.values import TransactionValues

MOMENTS = ("before", "appended", "durable")


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _arm(moment: str, passed: int) -> None:
    keep = TransactionValues.keep
    append = AtomicAppend.append
    ends = count(1)
    last: list[bool] = [False]

    def killing_append(self: AtomicAppend, on_done: Any) -> None:
        is_last = last[0]

        def killing_done(error: Any) -> None:
            if is_last and moment == "durable":
                _kill()
            on_done(error)

        append(self, killing_done)
        if is_last and moment == "appended":
            _kill()

    def killing_keep(
        self: TransactionValues, name: Any, value: Any, ending: Any, on_done: Any, **rest: Any
    ) -> None:
        last[0] = ending is not None and next(ends) > passed
        if last[0] and moment == "before":
            _kill()
        keep(self, name, value, ending, on_done, **rest)

    AtomicAppend.append = killing_append  # type: ignore[method-assign]
    TransactionValues.keep = killing_keep  # type: ignore[method-assign]


if __name__ == "__main__":
    if "HEADGATE_TEST_KILL_AT" in os.environ:
        _arm(
            os.environ["HEADGATE_TEST_KILL_AT"],
            int(os.environ.get("HEADGATE_TEST_KILL_AFTER", "0")),
        )
    sys.exit(main(sys.argv[1:]))
