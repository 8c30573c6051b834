"""``headgate recover-metadata``: rebuild the metadata store's topics and queues from the log.

For a store that was lost, or that belongs to other data. The log knows the topics' names,
uuids and partitions, and where which queues stand; configs, settings of queues, users, access
keys and rules are gone and must be set again. The node must be stopped.
"""

import asyncio

import typer

from gateway.cli import options
from gateway.cli.admin_client import settings_of
from gateway.cli.output import print_rows, say
from gateway.cli.recover_queues import list_queues
from gateway.clock import SystemClock
from gateway.config import Settings
from gateway.errors import GatewayError
from gateway.metadata import PRODUCER_IDS, TopicRow
from gateway.metadata_recovery import QueuePlace, restore_queues, restore_topics
from gateway.metadata_sql import SqlMetadata
from storage_adapters.segment_log.inspect import PartitionListing, list_partitions


class NothingToRecover(GatewayError):
    """There is no log that could say anything."""


def recover_metadata(
    *,
    yes: options.Yes = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Rebuild the metadata store's topics from the log of a stopped node."""
    settings = settings_of(config, assignments)
    listing = _listing(settings)
    if not yes:
        names = {identity.topic for identity in listing.identities}
        count, store = len(names), settings.metadata.url
        typer.confirm(
            f"Put {count} topic(s) of {settings.node.data_dir} into {store}?", abort=True
        )
    topics, queues = asyncio.run(_restore(settings, listing))
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
    if as_json:
        return
    say("\nThe log holds no configs, users, access keys and rules: set again what is missing.")
    if queues:
        say(
            "Queues have their messages and positions, but default settings, no tags and no\n"
            "dead-letter topic; some may have been deleted before: see `headgate queues ls`."
        )


def _listing(settings: Settings) -> PartitionListing:
    """Return what the log knows. Errors: ``NothingToRecover``, ``StorageUnavailable``."""
    data_dir = settings.node.data_dir
    if settings.storage.adapter != "segment_log":
        msg = f"storage.adapter is {settings.storage.adapter!r}; only segment_log can tell"
        raise NothingToRecover(msg)
    if not data_dir.is_dir():
        msg = (
            f"{data_dir.absolute()} is not there; name the folder with --set node.data_dir=..."
        )
        raise NothingToRecover(msg)
    listing = list_partitions(data_dir)
    if listing.data_uuid is None:
        msg = f"{data_dir.absolute()} holds no log"
        raise NothingToRecover(msg)
    return listing


async def _restore(
    settings: Settings, listing: PartitionListing
) -> tuple[list[TopicRow], list[QueuePlace]]:
    places = list_queues(settings.node.data_dir, listing)
    now_unix_ms = SystemClock().unix_ms()
    metadata = SqlMetadata(settings.metadata.url, data_dir=settings.node.data_dir)
    await metadata.open()
    try:
        topics = await restore_topics(
            metadata,
            listing.identities,
            data_uuid=listing.data_uuid,
            created_unix_ms=now_unix_ms,
        )
        queues = await restore_queues(metadata, places, created_unix_ms=now_unix_ms)
        # The log remembers the sequences of producers whose ids a new store would give out
        # again, and would take their first batches for repetitions. Ids above the time in
        # milliseconds were never given, unless a node gives out a thousand a second for years.
        await metadata.reserve_ids(PRODUCER_IDS, now_unix_ms)
    finally:
        await metadata.close()
    return topics, queues
