"""``headgate recover-metadata`` for a log in S3; rebuilds the index, too.

Imported only when the configuration names S3: boto3 takes a while.
"""

from collections.abc import Iterator
from typing import Final
from uuid import UUID

from gateway.cli.recover_queues import journal_ids, places_in
from gateway.clock import SystemClock
from gateway.config.settings import Settings
from gateway.metadata.recovery import QueuePlace
from gateway.model import PartitionIdentity
from gateway.private_files import make_data_dir
from gateway.sql.engines import engine_url
from storage_adapters.s3.bucket import Bucket
from storage_adapters.s3.config import S3Config
from storage_adapters.s3.index import Index
from storage_adapters.s3.login_object import is_login_required
from storage_adapters.s3.recovery import batches_of, restore_index, survey_bucket

SHOWN_MAX: Final = 10


class S3Log:
    """Log in a bucket. Errors of creating it: ``StorageUnavailable``."""

    def __init__(self, settings: Settings) -> None:
        config = settings.storage.options
        assert isinstance(config, S3Config)
        self._settings = settings
        self._config = config
        self._clock = SystemClock()
        self._bucket = Bucket(config, self._clock)
        self._survey = survey_bucket(config, self._bucket)
        self.place = f"bucket {config.bucket!r}, prefix {config.prefix!r}"

    @property
    def data_uuid(self) -> UUID:
        """UUID of the data."""
        return self._survey.data_uuid

    @property
    def identities(self) -> list[PartitionIdentity]:
        """The partitions that are not deleted."""
        return self._survey.identities

    def queues(self) -> list[QueuePlace]:
        """Return the queues that the journal has entries of. Errors: ``StorageUnavailable``."""
        found: set[QueuePlace] = set()
        for partition_id in journal_ids(self.identities):
            batches = batches_of(self._config, self._bucket, self._survey, partition_id)
            found |= places_in(batches)
        return sorted(found)

    def restore(self) -> None:
        """Rebuild the index; a running node is fenced. Errors: ``StorageUnavailable``."""
        data_dir = self._settings.node.data_dir
        make_data_dir(data_dir)
        index = Index(
            engine_url(self._settings.metadata.database_url, data_dir), clock=self._clock
        )
        index.open()
        try:
            unix_ms = self._clock.unix_ms()
            restore_index(self._config, self._bucket, index, self._survey, unix_ms)
        finally:
            index.close()

    def is_login_required(self) -> bool:
        """See ``Log``."""
        return is_login_required(self._config, self._bucket)

    def remarks(self) -> Iterator[str]:
        """Yield remarks about the findings, a line each."""
        decision = self._survey.decision
        yield f"{len(decision.live)} objects are in the index again."
        if len(decision.ends) > 1:
            yield f"They are of the logs of {len(decision.ends)} writers."
        if decision.unused:
            after_ms = self._config.delete_after_ms
            yield (
                f"{len(decision.unused)} others count no more, or never did; the node deletes them"
                f" {after_ms} ms after it was started."
            )
        if decision.unproven:
            numbers = [one.number for one in decision.unproven]
            yield (
                f"Of these, {len(numbers)} lie behind a gap, so nothing in them was acknowledged: "
                f"{_some(numbers)}."
            )
        for key, text in self._survey.damaged[:SHOWN_MAX]:
            yield f"{key} is damaged, and left out: {text}."
        for missing in decision.missing[:SHOWN_MAX]:
            yield (
                f"Partition {missing.partition_id} has lost the offsets {missing.first} to "
                f"{missing.end - 1}: no object holds them."
            )


def _some(numbers: list[int]) -> str:
    text = ", ".join(map(str, numbers[:SHOWN_MAX]))
    return text if len(numbers) <= SHOWN_MAX else f"{text}, ..."
