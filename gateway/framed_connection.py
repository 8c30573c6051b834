"""Connection whose requests are frames that follow their size; Kafka's and RocketMQ's are such."""

from collections import deque

from gateway.append_queue import AppendQueue
from gateway.budget import Budget, Intake
from gateway.connection import Connection
from gateway.connection_listener import ConnectionListener
from gateway.length_framer import LengthFramer


class FramedConnection(Connection):
    """Connection that cuts what it reads into ``frames``, which ``serve_frames`` takes.

    Reads are held while requests have no room (``room``), while their appends are too many bytes
    (``unacknowledged``), and while the log is saturated (``wal``).
    """

    def __init__(
        self,
        listener: "ConnectionListener[Connection]",
        budget: Budget,
        append_queue: AppendQueue,
        *,
        bytes_min: int,
        bytes_max: int,
        unacknowledged_bytes_max: int,
    ) -> None:
        """``bytes_min``, ``bytes_max``: of a frame. ``budget``: of the bytes of all requests."""
        super().__init__(listener)
        self.framer = LengthFramer(
            listener.receive_buffer, bytes_min=bytes_min, bytes_max=bytes_max
        )
        self.frames: deque[memoryview] = deque()
        self.intake = Intake(budget, self._on_room)
        self._append_queue = append_queue
        self._unacknowledged_bytes = 0
        self._unacknowledged_bytes_max = unacknowledged_bytes_max

    def serve_frames(self) -> None:
        """Serve the frames that may be served now."""
        raise NotImplementedError

    # --- reading

    def receive_buffer(self) -> memoryview:
        """See ``Connection``."""
        return self.framer.buffer()

    def received(self, size_bytes: int) -> None:
        """See ``Connection``."""
        frames = self.framer.received(size_bytes)
        if frames:
            self.frames.extend(frames)
        if not self.framer.is_midway:
            self.frame_started_s = None
        elif self.frame_started_s is None or frames:
            self.frame_started_s = self.listener.now_s
        self.serve_frames()

    def released(self) -> None:
        """See ``Connection``: serve the requests that are read already."""
        self.serve_frames()

    def _on_room(self) -> None:
        self.release_reads("room")

    # --- the log

    def hold_for_log(self) -> None:
        """Hold reads until the log is saturated no more."""
        self.hold_reads("wal")
        self._append_queue.hold(self._on_log_low)

    def _on_log_low(self) -> None:
        self.release_reads("wal")

    def add_unacknowledged(self, size_bytes: int) -> None:
        """Count a request whose append begins."""
        self._unacknowledged_bytes += size_bytes
        if self._unacknowledged_bytes > self._unacknowledged_bytes_max:
            self.hold_reads("unacknowledged")

    def take_unacknowledged(self, size_bytes: int) -> None:
        """Count a request no more, which ``add_unacknowledged`` counted: it is answered."""
        self._unacknowledged_bytes -= size_bytes
        if self._unacknowledged_bytes <= self._unacknowledged_bytes_max // 2:
            self.release_reads("unacknowledged")

    # --- ending

    def overdue(self, now_s: float) -> str | None:
        """See ``Connection``; a request that stalls while others need room is closed sooner."""
        if self.intake.is_stalled(self.bytes_received, now_s, is_held=bool(self._holds)):
            return "request_bytes_budget"
        return super().overdue(now_s)

    def closed(self) -> None:
        """See ``Connection``."""
        self.frames.clear()
        self._append_queue.unhold(self._on_log_low)
        self.intake.close()
