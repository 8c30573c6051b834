"""A celery application as users write them; where it works is said by the environment.

``HEADGATE_TEST_BROKER``: URL of the broker. ``HEADGATE_TEST_QUEUE``: the queue's name.
``HEADGATE_TEST_FOLDER``: where tasks leave their marks; ``hold`` there is a named pipe on which
the task that is given as ``held`` waits for a word.
"""

import os
from pathlib import Path

from celery import Celery

FOLDER = Path(os.environ["HEADGATE_TEST_FOLDER"])

app = Celery("interop", broker=os.environ["HEADGATE_TEST_BROKER"])
app.conf.update(
    task_default_queue=os.environ["HEADGATE_TEST_QUEUE"],
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    worker_enable_remote_control=False,
    worker_send_task_events=False,
    broker_connection_retry_on_startup=True,
    broker_transport_options={
        "is_secure": False,
        "region": "us-east-1",
        "visibility_timeout": 3,
        "wait_time_seconds": 2,
        "polling_interval": 0.1,
    },
)


def mark(name: str, number: int) -> None:
    """Append a line to a file; lines of this length are written whole."""
    with (FOLDER / name).open("a") as marks:
        marks.write(f"{number}\n")


@app.task(name="interop.work")  # type: ignore[untyped-decorator]
def work(number: int, *, held: bool = False) -> None:
    """Do nothing, and record it; when held, wait for the test first."""
    mark("begun", number)
    if held:
        (FOLDER / "hold").read_bytes()
    mark("done", number)
