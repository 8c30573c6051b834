"""A celery application as users write them; where it works is said by the environment.

``HEADGATE_TEST_BROKER``: URL of the broker. ``HEADGATE_TEST_QUEUE``: the queue's name.
``HEADGATE_TEST_BACKEND``: URL of the results. ``HEADGATE_TEST_FOLDER``: where tasks leave marks.
"""

import os
from pathlib import Path
from typing import Any

from celery import Celery

app = Celery(
    "interop",
    broker=os.environ["HEADGATE_TEST_BROKER"],
    backend=os.environ["HEADGATE_TEST_BACKEND"],
)
app.conf.update(
    task_default_queue=os.environ["HEADGATE_TEST_QUEUE"],
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    control_exchange=os.environ["HEADGATE_TEST_QUEUE"] + "-control",
    event_exchange=os.environ["HEADGATE_TEST_QUEUE"] + "-events",
    result_chord_retry_interval=0.2,
    task_queue_max_priority=5,
)


@app.task(name="interop.add")  # type: ignore[untyped-decorator]
def add(one: int, other: int) -> int:
    """Return a sum."""
    return one + other


@app.task(name="interop.total")  # type: ignore[untyped-decorator]
def total(numbers: list[int]) -> int:
    """Return the sum of the results of others."""
    return sum(numbers)


@app.task(name="interop.flaky", bind=True, max_retries=3)  # type: ignore[untyped-decorator]
def flaky(self: Any) -> int:
    """Fail twice, and return how often it was tried again."""
    retries = int(self.request.retries)
    if retries < 2:
        raise self.retry(countdown=0.1)
    return retries


@app.task(name="interop.mark")  # type: ignore[untyped-decorator]
def mark(text: str) -> None:
    """Leave a line."""
    with (Path(os.environ["HEADGATE_TEST_FOLDER"]) / "marks").open("a") as marks:
        marks.write(f"{text}\n")
