"""``headgate pipeline archive --hold``: report the table's offsets to the node.

The node commits it for a group, which topics name by ``archive.hold``; what the group has not
committed stays. Nothing here stops the archive: where the node cannot be told, a hold stays
where it was, which keeps more than is needed.
"""

from collections.abc import Callable, Mapping
from typing import Final

from gateway.cli.admin_client import AdminClient, NodeUnreachable, Refused
from gateway.cli.output import fail
from gateway.cli.settings import client_of
from gateway.config.settings import Settings
from gateway.errors import GatewayError
from gateway.model import PartitionIdentity, TopicName

_CONFIG: Final = "archive.hold"

Positions = Mapping[PartitionIdentity, int | None]
"""Next offset of a table; None where it needs all that the log still has."""


def begin_hold(
    settings: Settings, job_id: str, starts: Positions, *, holds: bool
) -> Callable[[Mapping[PartitionIdentity, int]], None]:
    """Commit the table's offsets, warn of topics without the hold; return a later committer.

    Also when nothing is new: committed offsets expire, and the last run may have found no node.
    """
    if not holds:
        return lambda _: None
    group = _ArchiveGroup(settings, f"archive.{job_id}")
    group.post(starts)
    group.check(sorted({identity.topic for identity in starts}))
    return group.post


class _ArchiveGroup:
    """Consumer group of one archive; each kind of failure is reported once, in one line."""

    def __init__(self, settings: Settings, name: str) -> None:
        self._settings = settings
        self._name = name
        self._said: set[str] = set()

    def post(self, positions: Positions) -> None:
        """Commit the table's offsets."""
        failures: list[str] = []
        try:
            client = client_of(self._settings)
            for identity, offset in positions.items():
                try:
                    self._post_one(client, identity, offset)
                except Refused as error:  # The others may well be taken.
                    failures.append(str(error))
        except GatewayError as error:
            failures.append(str(error))
        if failures:
            self._warn(f"the hold of {self._name} stays where it was: {failures[0]}")

    def check(self, topics: list[TopicName]) -> None:
        """Warn of topics whose retention does not wait for this group."""
        for topic in topics:
            try:
                query = {"namespace": topic.namespace}
                client = client_of(self._settings)
                configs = client.get("topics", topic.name, query=query)["configs"]
            except Refused:
                continue  # The topic is gone.
            except NodeUnreachable:
                return  # That was said when positions were posted.
            if not any((one["name"], one["value"]) == (_CONFIG, self._name) for one in configs):
                self._warn(
                    f"{topic.name} does not wait for this archive: `headgate topics alter "
                    f"{topic.name} -c {_CONFIG}={self._name}`"
                )

    def _post_one(
        self, client: AdminClient, identity: PartitionIdentity, offset: int | None
    ) -> None:
        body = {
            "topic": identity.topic.name,
            "topic_uuid": str(identity.topic_uuid),
            "partition": identity.number,
            "to": "earliest" if offset is None else str(offset),
        }
        query = {"namespace": identity.topic.namespace}
        client.send("POST", "groups", self._name, "offsets", body=body, query=query)

    def _warn(self, text: str) -> None:
        line = " ".join(text.split())
        if line not in self._said:
            self._said.add(line)
            fail(line)
