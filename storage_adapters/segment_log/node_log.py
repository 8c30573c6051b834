"""The segment log as a node opens it: with key indexes beside it, and ready to be copied."""

from pathlib import Path

from gateway.clock import Clock
from gateway.storage import StorageHost
from storage_adapters.segment_log.adapter import SegmentLog
from storage_adapters.segment_log.backup import HoldingFiles, LogCopier
from storage_adapters.segment_log.config import SegmentLogConfig
from storage_adapters.segment_log.files import Files, SystemFiles
from storage_adapters.segment_log.key_indexes import KeyIndexes


class NodeLog(SegmentLog):
    """A ``SegmentLog`` with what works on its files: ``copier`` and ``key_indexes``.

    Both are there once it is open, and end with it.
    """

    copier: LogCopier
    key_indexes: KeyIndexes

    def __init__(
        self,
        config: SegmentLogConfig,
        *,
        data_dir: Path,
        clock: Clock,
        files: Files | None = None,
    ) -> None:
        self._holding = HoldingFiles(SystemFiles() if files is None else files)
        super().__init__(config, data_dir=data_dir, clock=clock, files=self._holding)

    async def open(self, host: StorageHost) -> None:
        """See ``StorageAdapter``."""
        await super().open(host)
        self.copier = LogCopier(
            self._catalog, self._writer, files=self._holding, data_dir=self._data_dir
        )
        self.key_indexes = KeyIndexes(
            self._catalog,
            files=self._holding,
            data_dir=self._data_dir,
            pace=self._settler.pace,
            read=self.read,
            memory_bytes_max=self._config.key_index_memory_bytes,
        )
