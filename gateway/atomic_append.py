"""One append of values of several internal streams and of encoded batches."""

from collections.abc import Sequence
from functools import partial

from gateway.broker import Broker
from gateway.coalescer import AnyPart, call_all
from gateway.errors import GatewayError, StorageUnavailable, as_value
from gateway.model import parse_batch_header
from gateway.partition import Partition, Write
from gateway.records.codec import encode_runs
from gateway.records.record_run import Run
from gateway.storage import OnDone


class AtomicAppend:
    """Gathers what belongs together; ``append`` makes all of it durable, or nothing.

    It is a ``RunSink`` for the ``put`` of streams whose own coalescers were flushed before, and
    is used within one turn of the loop.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._runs: dict[Partition, list[Run]] = {}
        self._batches: list[Write] = []
        self._waiting: list[OnDone] = []

    def add_many(
        self, parts: Sequence[AnyPart], on_done: OnDone, *, as_is: bool = False
    ) -> None:
        """Add runs of internal topics; see ``Coalescer.add_many``. Errors: ``NotLeader``."""
        del as_is
        for partition, run in parts:
            assert isinstance(partition, Partition)  # streams have no groups of targets
            partition.check_present()
            self._runs.setdefault(partition, []).append(run)
        self._waiting.append(on_done)

    def add_write(self, write: Write) -> None:
        """Add a batch of a partition of this node."""
        self._batches.append(write)

    def append(self, on_done: OnDone) -> None:
        """Append all that was added; ``on_done`` runs once, after those of the streams.

        Errors, with nothing changed: those of ``Writer.append``. Room that is reserved on the
        disk may be used.
        """
        writes = [_to_write(partition, runs) for partition, runs in self._runs.items()]
        waiting = [*self._waiting, on_done]
        try:
            self._broker.append(
                [*self._batches, *writes], partial(call_all, waiting), reserved=True
            )
        except GatewayError as error:
            self.undo(as_value(error))
            raise

    def undo(self, error: GatewayError) -> None:
        """Let the streams take back what they were given, as nothing is appended."""
        told = StorageUnavailable(str(error))
        call_all(reversed(self._waiting), told)


def _to_write(partition: Partition, runs: list[Run]) -> Write:
    data = encode_runs(runs)
    return Write(partition, data, parse_batch_header(data))
