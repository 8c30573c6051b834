"""``headgate recover-metadata``: rebuild the metadata store's topics and queues from the log.

For a store that was lost, or that belongs to other data. The log knows the topics' names,
uuids and partitions, and where which queues stand; configs, settings of queues, users, access
keys and rules are gone and must be set again. Of a log in S3 the index is rebuilt, too. The node
must be stopped.
"""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Protocol
from uuid import UUID

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from gateway.auth.login_policy import LoginPolicy
from gateway.cli import options
from gateway.cli.node_commands import confirm
from gateway.cli.output import note, print_rows, say
from gateway.cli.recover_queues import list_queues
from gateway.cli.settings import settings_of
from gateway.cli.stopped_node import stopped_metadata
from gateway.clock import SystemClock
from gateway.config.settings import Settings
from gateway.contributions import Contributions
from gateway.errors import GatewayError
from gateway.metadata.recovery import QueuePlace, restore_queues, restore_topics
from gateway.metadata.store import PRODUCER_IDS, TopicRow
from gateway.model import PartitionIdentity
from storage_adapters.segment_log.inspect import PartitionListing, list_partitions
from storage_adapters.segment_log.login_file import is_login_required

_REQUIRED: Final = (
    "WARNING: everybody must log in (auth.required), and the users are lost: add them again with",
    "`headgate users add`. Until then no client gets in.",
)
_NOT_REQUIRED: Final = (
    "WARNING: nobody must log in. If that was different before, set auth.required = true, or run",
    "`headgate users add --offline`, before the node is started.",
)


class NothingToRecover(GatewayError):
    """Missing log: there is nothing to recover from."""


class Log(Protocol):
    """Log as it can be read without the metadata store. ``place``: its location."""

    @property
    def place(self) -> str:
        """Location of the log, for people."""
        ...

    @property
    def data_uuid(self) -> UUID:
        """UUID of the data."""
        ...

    @property
    def identities(self) -> list[PartitionIdentity]:
        """The partitions that are not deleted."""
        ...

    def queues(self) -> list[QueuePlace]:
        """Return the queues that the journal has entries of."""
        ...

    def restore(self) -> None:
        """Rebuild what the storage itself keeps in the metadata store's database."""
        ...

    def is_login_required(self) -> bool:
        """Say whether everybody had to log in when the node ran last."""
        ...

    def remarks(self) -> Iterable[str]:
        """Return further remarks for the user, a line each."""
        ...


class SegmentLogOf:
    """Log in a data directory that the caller has locked."""

    def __init__(self, data_dir: Path, data_uuid: UUID, listing: PartitionListing) -> None:
        self._data_dir = data_dir
        self._listing = listing
        self.data_uuid = data_uuid
        self.identities = listing.identities
        self.place = str(data_dir)

    def queues(self) -> list[QueuePlace]:
        """See ``Log``."""
        return list_queues(self._data_dir, self._listing)

    def restore(self) -> None:
        """See ``Log``; there is nothing to rebuild."""

    def is_login_required(self) -> bool:
        """See ``Log``."""
        return is_login_required(self._data_dir)

    def remarks(self) -> Iterable[str]:
        """See ``Log``."""
        return ()


def recover_metadata(
    *,
    yes: options.Yes = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Rebuild the metadata store's topics from the log of a stopped node."""
    settings = settings_of(config, assignments)
    log = _log_of(settings)
    count = len({identity.topic for identity in log.identities})
    store = _shown(settings.metadata.database_url)
    confirm(lambda: f"Put {count} topic(s) of {log.place} into {store}?", yes=yes)
    log.restore()
    topics, queues, must_log_in = asyncio.run(_restore(settings, log))
    rows = [
        {
            "namespace": topic.name.namespace,
            "name": topic.name.name,
            "partitions": sum(part.length for part in topic.ranges),
            "queue_groups": [place.group for place in queues if place.topic_uuid == topic.uuid],
            "uuid": str(topic.uuid),
        }
        for topic in topics
    ]
    columns = ["namespace", "name", "partitions", "queue_groups", "uuid"]
    print_rows(rows, columns, as_json=as_json)
    for line in _REQUIRED if must_log_in else _NOT_REQUIRED:
        note(line)
    if as_json:
        return
    for remark in log.remarks():
        say(remark)
    say("\nThe log holds no configs, users, access keys and rules: set again what is missing.")
    if queues:
        say(
            "Queues have their messages and positions, but default settings, no tags and no\n"
            "dead-letter topic; some may have been deleted before: see `headgate queues ls`."
        )


def _log_of(settings: Settings) -> Log:
    """Return the log. Errors: ``NothingToRecover``, ``StorageUnavailable``."""
    adapter = settings.storage.adapter
    if adapter == "s3":
        from gateway.cli.recover_s3 import S3Log

        return S3Log(settings)
    if adapter != "segment_log":
        msg = f"storage.adapter is {adapter!r}; only segment_log and s3 can tell"
        raise NothingToRecover(msg)
    data_dir = settings.node.data_dir
    if not data_dir.is_dir():
        msg = (
            f"{data_dir.absolute()} is not there; name the folder with --set node.data_dir=..."
        )
        raise NothingToRecover(msg)
    listing = list_partitions(data_dir)
    if listing.data_uuid is None:
        msg = f"{data_dir.absolute()} holds no log"
        raise NothingToRecover(msg)
    return SegmentLogOf(data_dir, listing.data_uuid, listing)


async def _restore(
    settings: Settings, log: Log
) -> tuple[list[TopicRow], list[QueuePlace], bool]:
    """Restore what the log knows; return topics, queues, and whether everybody must log in."""
    places = await asyncio.to_thread(log.queues)
    is_required = await asyncio.to_thread(log.is_login_required)
    now_unix_ms = SystemClock().unix_ms()
    async with stopped_metadata(settings) as metadata:
        topics = await restore_topics(
            metadata,
            log.identities,
            data_uuid=log.data_uuid,
            created_unix_ms=now_unix_ms,
            contributions=Contributions.of(settings.adapters),
        )
        queues = await restore_queues(metadata, places, created_unix_ms=now_unix_ms)
        # The log remembers the sequences of producers whose ids a new store would give out
        # again, and would take their first batches for repetitions. Ids above the time in
        # milliseconds were never given, unless a node gives out a thousand a second for years.
        await metadata.reserve_ids(PRODUCER_IDS, now_unix_ms)
        if is_required:
            await metadata.set_required(required=True)
        policy = LoginPolicy.of(metadata, settings)
        await policy.load()
    return topics, queues, policy.required


def _shown(url: str) -> str:
    """Return a database's URL without the password that may be in it."""
    if "://" not in url:
        return url
    try:
        return make_url(url).render_as_string()
    except ArgumentError:
        return "the database"  # what is wrong with it is said without it
