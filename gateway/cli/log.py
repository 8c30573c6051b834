"""``headgate log``: dump and verify a data directory, damaged or not, without changes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli import options
from gateway.cli.live_verify import LIVE_BYTES_PER_S, verify_live
from gateway.cli.output import fail, say
from gateway.cli.progress import Progress
from gateway.cli.synonyms import command_group
from gateway.errors import RequestError, StorageUnavailable
from gateway.model import BatchHeader, Buffer, is_abort_marker, parse_batch_header
from gateway.records.codec import iter_records
from storage_adapters.formats.entry import (
    FLAG_CONTROL,
    KIND_BATCH,
    KIND_NAMES,
    EntryHeader,
)
from storage_adapters.formats.footer import Footer, Part
from storage_adapters.formats.manifest import SHARED, FileRecord
from storage_adapters.segment_log.copying import is_intact
from storage_adapters.segment_log.inspect import (
    EntryReport,
    SegmentReport,
    inspect_entries,
    inspect_footer,
    inspect_segment,
    inspect_segments,
    node_beside,
    read_batch,
    settled_batches,
)
from storage_adapters.segment_log.segments import SETTLED_DIRECTORY, settled_path
from storage_adapters.segment_log.settled_files import read_manifest
from storage_adapters.segment_log.verify import DAMAGED, Verification

_VALUE_CHARS_MAX = 80
_EXIT_DAMAGED = 1
_EXIT_BUSY = 2
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

log_app = command_group("The log's files on the disk.")


@log_app.callback()
def _log() -> None:
    """Group the commands."""


@log_app.command()
def dump(
    data_dir: Annotated[Path, typer.Argument(help="The node's data_dir.", exists=True)],
    *,
    segment: Annotated[
        int | None, typer.Option(help="Only this segment, by its number.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option(help="Only batches of this partition id.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Entries to print at most.")] = 1_000,
    records: Annotated[bool, typer.Option(help="Print the records of batches.")] = False,
) -> None:
    """Print segments, entries, footers, batches; then the manifest and settled segments.

    Exit status 1 when something is damaged.
    """
    holder = node_beside(data_dir)
    if holder is not None:
        say(f"# process {holder} runs on this data: what it is writing may look torn")
    printer = _Printer(partition, limit, records=records)
    found = False
    for report in inspect_segments(data_dir):
        if segment is None or report.number == segment:
            found = True
            printer.print_segment(report)
    found = printer.print_settled(data_dir, segment) or found
    if not found:
        fail(f"no segment {'' if segment is None else segment} in {data_dir / 'wal'}")
        raise typer.Exit(_EXIT_DAMAGED)
    if printer.damages:
        fail(f"{printer.damages} place(s) are damaged")
        raise typer.Exit(_EXIT_DAMAGED)


@log_app.command()
def verify(
    data_dir: Annotated[
        Path | None, typer.Argument(help="The data_dir of a stopped node, or a backup.")
    ] = None,
    *,
    live: Annotated[
        bool, typer.Option(help="Let the running node check the CRC of each batch.")
    ] = False,
    bytes_per_s: Annotated[
        int, typer.Option(min=4_096, help="With --live: most bytes read per second.")
    ] = LIVE_BYTES_PER_S,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Read the whole log and check CRCs, sequences, footers, the manifest and offsets.

    Says what a start would repair. Exit status 1 when something is damaged, 0 otherwise. Of a
    running node (--live) the batches are read, at a bounded rate, while it serves its clients.
    """
    if live == (data_dir is not None):
        raise typer.BadParameter("name the data directory of a stopped node, or --live")
    if data_dir is None:
        damages = verify_live(config, assignments, bytes_per_s)
    else:
        damages = _verify_stopped(data_dir)
    if damages:
        fail(f"{damages} place(s) are damaged")
        raise typer.Exit(_EXIT_DAMAGED)


def _log_bytes(data_dir: Path) -> int:
    folders = ("wal", SETTLED_DIRECTORY)
    files = [path for folder in folders for path in (data_dir / folder).glob("*")]
    return sum(path.stat().st_size for path in files if path.is_file())


def _verify_stopped(data_dir: Path) -> int:
    """Print the damage in a stopped node's files; return the number of damaged places."""
    if not data_dir.exists():
        raise typer.BadParameter(f"{data_dir} is not there")
    holder = node_beside(data_dir)
    if holder is not None:
        fail(
            f"process {holder} runs on this data: verify --live, or stop it, or verify a backup"
        )
        raise typer.Exit(_EXIT_BUSY)
    progress = Progress(_log_bytes(data_dir))
    verification = Verification(data_dir, progress.add)
    damages = 0
    for finding in verification.run():
        damages += finding.kind == DAMAGED
        say(f"{finding.kind}  {finding.path}: {finding.text}")
    progress.end()
    say(
        f"{verification.files_count} files, {verification.bytes_count} bytes, "
        f"{verification.batches_count} batches, {verification.partitions_count} partitions"
    )
    return damages


class _Printer:
    """Printer of reports, which counts damaged places."""

    def __init__(self, partition: int | None, limit: int, *, records: bool) -> None:
        self._partition = partition
        self._left = limit
        self._records = records
        self.damages = 0

    def print_segment(self, report: SegmentReport) -> None:
        """Print a segment: a line for itself, its entries, its footer."""
        say(f"segment {report.number}  {report.path.name}  {report.file_bytes} bytes")
        if report.header is None:
            self.damages += 1
            say(f"  DAMAGED at 0: {report.problem}")
            return
        header = report.header
        say(
            f"  data {header.data_uuid}  after segment {header.previous}  incarnation "
            f"{header.incarnation}  sequences from {header.first_sequence}"
        )
        for entry in inspect_entries(report):
            if self._left == 0:
                say("  ... (--limit)")
                break
            self._print_entry(report, entry)
        self._print_footer(report)

    def print_settled(self, data_dir: Path, number: int | None) -> bool:
        """Print the manifest and the settled segments; return whether there are any."""
        try:
            manifest = read_manifest(data_dir)
        except StorageUnavailable as error:
            self.damages += 1
            say(f"DAMAGED: {error}")
            return True
        if manifest is None:
            return False
        if number is None:
            say(
                f"manifest  generation {manifest.generation}  log segments up to "
                f"{manifest.wal_upto} are settled  directory {manifest.directory}"
            )
        records = [r for r in manifest.files if number in {None, r.number}]
        for record in records:
            self._print_settled_segment(data_dir, record)
        return bool(records) or number is None

    def _print_settled_segment(self, data_dir: Path, record: FileRecord) -> None:
        path = settled_path(data_dir, record.number)
        owner = "shared" if record.owner == SHARED else f"partition {record.owner}"
        dead = f"  dead {sorted(record.dead)}" if record.dead else ""
        say(f"settled {record.number}  {owner}  {record.file_bytes} bytes{dead}")
        try:
            report = inspect_segment(path, record.number)
        except OSError as error:
            self.damages += 1
            say(f"  DAMAGED: {error}")
            return
        footer = inspect_footer(report)
        if report.header is None or footer is None:
            self.damages += 1
            say(f"  DAMAGED: {report.problem or report.footer_problem}")
            return
        self._print_footer(report)
        for part in footer:
            if self._partition in {None, part.partition_id}:
                self._print_settled_batches(path, footer, part)

    def _print_settled_batches(self, path: Path, footer: Footer, part: Part) -> None:
        for batch in settled_batches(path, footer, part):
            if self._left == 0:
                return
            self._left -= 1
            if not is_intact(batch):
                self.damages += 1
                say("    DAMAGED: the CRC of the batch does not match")
            for line in _batch_lines(batch, records=self._records):
                say(f"    {part.partition_id}  {line}")

    def _print_entry(self, report: SegmentReport, entry: EntryReport) -> None:
        if entry.problem:
            self.damages += 1
            say(f"  DAMAGED at {entry.position} ({entry.size_bytes} bytes): {entry.problem}")
            if entry.header is None:
                return
        if self._partition is not None and not self._concerns(entry):
            return
        self._left -= 1
        for line in _entry_lines(entry):
            say(f"  {line}")
        header = entry.header
        if header is not None and header.kind == KIND_BATCH and not entry.problem:
            for line in _batch_lines(read_batch(report, entry), records=self._records):
                say(f"    {line}")

    def _concerns(self, entry: EntryReport) -> bool:
        return any(partition_id == self._partition for partition_id, _ in entry.targets)

    def _print_footer(self, report: SegmentReport) -> None:
        footer = inspect_footer(report)
        if footer is None:
            say(f"  open: {report.footer_problem}")
            return
        trailer = footer.trailer
        say(
            f"  footer at {trailer.footer_at}  sequences [{trailer.first_sequence}, "
            f"{trailer.next_sequence})  {trailer.row_count} batches of "
            f"{trailer.partition_count} partitions"
        )
        for part in footer:
            if self._partition in {None, part.partition_id}:
                deleted = "  deleted" if part.is_deleted else ""
                say(
                    f"    partition {part.partition_id}  [{part.start}, {part.end})  "
                    f"{part.row_count} batches from {part.first_offset}  "
                    f"{part.size_bytes} bytes  epochs {part.first_epoch} to "
                    f"{part.last_epoch}{deleted}"
                )


def _entry_lines(entry: EntryReport) -> Iterator[str]:
    header = entry.header
    assert header is not None
    last = "  last" if header.is_last else ""
    targets = "  ".join(f"{partition_id}@{offset}" for partition_id, offset in entry.targets)
    yield (
        f"{entry.position}  {KIND_NAMES.get(header.kind, f'kind {header.kind}')}  "
        f"sequence {header.sequence}  durable {header.durable_sequence}{last}{_marks(header)}  "
        f"{header.body_bytes} bytes  {targets}{entry.detail}"
    )


def _marks(header: EntryHeader) -> str:
    """Return the flags of a control entry in words."""
    if header.is_abort:
        return "  control abort"
    return "  control" if header.flags & FLAG_CONTROL else ""


def _batch_lines(batch: Buffer, *, records: bool) -> Iterator[str]:
    header = parse_batch_header(batch)
    codec = header.attributes & 7
    producer = (
        f"  producer {header.producer_id}/{header.producer_epoch}: {header.base_sequence}"
        if header.is_idempotent
        else ""
    )
    yield (
        f"offsets {header.base_offset} to {header.last_offset}  epoch {header.leader_epoch}  "
        f"{header.record_count} records  "
        f"{_CODECS[codec] if codec < len(_CODECS) else codec}  "
        f"timestamps {header.base_timestamp_unix_ms} to {header.max_timestamp_unix_ms}"
        f"{producer}{_transaction(batch, header)}"
    )
    if not records:
        return
    try:
        for record in iter_records(batch):
            yield (
                f"  {record.offset}  {record.timestamp_unix_ms}  {_short(record.key)} = "
                f"{_short(record.value)}  {list(record.headers) or ''}".rstrip()
            )
    except RequestError as error:
        yield f"  the records cannot be read: {error}"


def _transaction(batch: Buffer, header: BatchHeader) -> str:
    """Return what a batch is in a transaction; nothing outside of one."""
    if header.is_control:
        return "  abort marker" if is_abort_marker(batch) else "  commit marker"
    return "  transactional" if header.is_transactional else ""


def _short(value: bytes | None) -> str:
    if value is None:
        return "null"
    text = repr(value)[1:]
    return text if len(text) <= _VALUE_CHARS_MAX else f"{text[:_VALUE_CHARS_MAX]}..."
