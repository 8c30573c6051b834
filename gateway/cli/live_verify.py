"""``headgate log verify --live``: a scrub by the running node."""

from pathlib import Path
from typing import Final

from gateway.cli.admin_client import Refused
from gateway.cli.output import say
from gateway.cli.progress import Progress
from gateway.cli.settings import client_of, settings_of

LIVE_BYTES_PER_S: Final = 67_108_864


def verify_live(config: Path | None, assignments: list[str] | None, bytes_per_s: int) -> int:
    """Run a scrub pass, print the damaged batches, and return their number.

    Error: ``Refused`` where the storage could not read all; what it could not is printed, too.
    """
    client = client_of(settings_of(config, assignments))
    found = client.send("POST", "scrub", body={"bytes_per_s": bytes_per_s})
    progress = Progress(found["total_bytes"])
    while found["state"] == "running":
        found = client.get("scrub", query={"wait": "1"})
        progress.show(found["checked_bytes"])
    progress.end()
    for one in found["damages"]:
        say(f"DAMAGED  {one['topic']}-{one['partition']} offset {one['offset']}: {one['what']}")
    for one in found["unread"]:
        place = f"{one['topic']}-{one['partition']} offset {one['offset']}"
        say(f"UNREAD   {place} and later: {one['error']}")
    say(f"{found['checked_bytes']} bytes of batches")
    if found["error"]:
        raise Refused(f"not all was read: {found['error']}")
    return int(found["damages_count"])
