"""Age of the first unread message of a partition, with a bounded number of reads."""

from gateway.broker import Broker
from gateway.errors import GatewayError
from gateway.model import parse_batch_header
from gateway.partition import Partition


class MessageAges:
    """Timestamps of batches by partition and offset, remembered from scrape to scrape.

    A position that stands still costs no further read. ``begin`` starts a scrape, in which at most
    ``reads_max`` batches are read from the disk or the bucket; those in memory cost nothing.
    """

    def __init__(self, broker: Broker, *, reads_max: int) -> None:
        self._broker = broker
        self._reads_max = reads_max
        self._reads_left = 0
        self._known: dict[tuple[int, int], int] = {}
        self._before: dict[tuple[int, int], int] = {}

    def begin(self) -> None:
        """Begin a scrape: forget the positions that the last one did not ask for."""
        self._before, self._known = self._known, {}
        self._reads_left = self._reads_max

    async def seconds(self, partition: Partition, offset: int) -> float | None:
        """Return the age of the batch at an offset in seconds; 0 at the end.

        None when it would take one read too many, or when it cannot be read.
        """
        offset = max(offset, partition.log_start_offset)
        if offset >= partition.stable_end:
            return 0.0
        key = (partition.partition_id, offset)
        written_unix_ms = self._before.get(key)
        if written_unix_ms is None:
            written_unix_ms = await self._read(partition, offset)
        if written_unix_ms is None:
            return None
        self._known[key] = written_unix_ms
        return max(0, self._broker.clock.unix_ms() - written_unix_ms) / 1_000

    async def _read(self, partition: Partition, offset: int) -> int | None:
        try:
            batches = self._broker.read(partition, offset, bytes_max=1)
            if batches is None:
                if not self._reads_left:
                    return None
                self._reads_left -= 1
                batches = await self._broker.read_disk(partition, offset, bytes_max=1)
        except GatewayError:
            return None
        return parse_batch_header(batches[0]).base_timestamp_unix_ms if batches else None
