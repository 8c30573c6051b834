"""Use a celery worker that runs, and print what came back, a line for each step.

Arguments: ``chords`` where the backend of the results has them.
"""

import sys
import threading
from typing import Any

from celery import chord
from celery.exceptions import TimeoutError as NoResult

from tests.interop.amqp.programs.celery_app import add, app, flaky, total

WITHIN_S = 60
TRIES = 10


def say(name: str, value: object) -> None:
    """Print a step."""
    sys.stdout.write(f"> {name} {value}\n")
    sys.stdout.flush()


class Watcher(threading.Thread):
    """Receiver of the worker's events."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.listens = threading.Event()
        self.succeeded = threading.Event()

    def run(self) -> None:
        """Receive until a task has succeeded."""
        with app.connection_for_read() as connection:
            receiver = app.events.Receiver(connection, handlers={"*": self._on_event})
            ready = receiver.on_consume_ready

            def on_consume_ready(*args: Any, **more: Any) -> None:
                self.listens.set()
                ready(*args, **more)

            receiver.on_consume_ready = on_consume_ready
            receiver.capture(limit=None, timeout=WITHIN_S, wakeup=True)

    def _on_event(self, event: dict[str, Any]) -> None:
        if event["type"] == "task-succeeded":
            self.succeeded.set()


def main() -> None:
    """Run the steps."""
    watcher = Watcher()
    watcher.start()
    watcher.listens.wait(WITHIN_S)
    say("add", add.delay(2, 3).get(timeout=WITHIN_S))
    say("event", watcher.succeeded.wait(WITHIN_S))
    say("countdown", add.apply_async((1, 1), countdown=0.2).get(timeout=WITHIN_S))
    say("retries", flaky.delay().get(timeout=WITHIN_S))
    if "chords" in sys.argv:
        done = chord([add.s(number, number) for number in range(4)])(total.s())
        say("chord", done.get(timeout=WITHIN_S))
    for _ in range(TRIES):  # each waits a second for answers
        if answers := app.control.ping(timeout=1, limit=1):
            say("ping", next(iter(answers[0].values()))["ok"])
            break


if __name__ == "__main__":
    try:
        main()
    except NoResult:
        say("failed", "no result")
