"""Lake table of plain Parquet files, with manifests that list the table's files.

Manifest ``_headgate/<number>.json`` names the files that a commit adds and removes and the
positions that it moves. It is created as a whole, and only if its number is free: by a link in a
folder, by a conditional PUT in a bucket. The second of two writers reads the first one's manifest,
and continues after it or gives up. Every 64th manifest holds all earlier ones, so that a reader
needs at most 64 of them.

Readers follow the manifests (``files``); a file that no manifest names is not part of the table.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from uuid import uuid4

from gateway.clock import SystemClock
from gateway.errors import RequestError
from gateway.model import PartitionIdentity
from pipeline.lake.expected_positions import ExpectedPositions
from pipeline.lake.files import BAD_KIND, ROWS_KIND, LakeFile, Layout, TableKind
from pipeline.lake.merging import OneFile
from pipeline.lake.place import LakeUnavailable, TablePlace, open_place, reaching
from pipeline.lake.port import bad_url, check_columns, overtaken, position_name

FORMAT: Final = 1
FOLDER: Final = "_headgate"
WHOLE_EVERY: Final = 64
_TRIES_MAX: Final = 100  # concurrent commits of others
_DIGITS: Final = 20

Json = dict[str, Any]


class StoredFile(NamedTuple):
    """A file of the table. ``path`` is below the table."""

    path: str
    topic: str
    day: str
    rows: int
    bytes: int


@dataclass
class Content:
    """The table after manifest ``number``; -1 when there is none.

    ``replaced``: files that are no longer part of it, with the time of removal (unix ms).
    """

    number: int = -1
    columns: dict[str, str] = field(default_factory=dict)
    files: dict[str, StoredFile] = field(default_factory=dict)
    positions: dict[str, dict[str, int]] = field(default_factory=dict)
    replaced: dict[str, int] = field(default_factory=dict)

    def follow(self, manifest: Json) -> None:
        """Apply the next manifest."""
        self.number = manifest["number"]
        self.columns = manifest.get("columns", self.columns)
        for path in manifest["removed"]:
            self.files.pop(path, None)
            self.replaced[path] = manifest["unix_ms"]
        self.replaced |= manifest.get("replaced", {})
        for path in manifest.get("deleted", ()):
            self.replaced.pop(path, None)
        self.files |= {one["path"]: StoredFile(**one) for one in manifest["files"]}
        for job_id, moved in manifest["positions"].items():
            self.positions.setdefault(job_id, {}).update(moved)


class ParquetLake:
    """A ``Lake``; see there."""

    def __init__(self, url: str, job_id: str, kind: TableKind = ROWS_KIND) -> None:
        self.url = url
        self.layout = Layout(kind.columns, in_path=False)
        self._kind = kind
        self._job_id = job_id
        self._expected = ExpectedPositions(self._position)
        self._place = open_place(url)
        with reaching(url):
            self._content = read_content(self._place)
            if self._content.number < 0:
                columns = {one.name: str(one.type) for one in kind.columns}
                self._create(Change(), columns)
                self._content = read_content(self._place)
        check_columns(
            url, self._content.columns, {one.name: str(one.type) for one in kind.columns}
        )

    @property
    def content(self) -> Content:
        """Content as last read."""
        return self._content

    def position(self, identity: PartitionIdentity) -> int | None:
        """See ``Lake``."""
        return self._expected.read(position_name(identity))

    def commit(
        self, files: Sequence[LakeFile], positions: Mapping[PartitionIdentity, int]
    ) -> None:
        """See ``Lake``."""
        moved = {position_name(identity): offset for identity, offset in positions.items()}
        self._expected.add_missing(moved)
        self.change(Change(_stored(files), positions=moved))
        self._expected.move(moved)

    def listed(self) -> list[OneFile]:
        """Return the table's files for a compaction."""
        return [
            OneFile(one.path, one.topic, one.day, one.bytes)
            for one in self._content.files.values()
        ]

    def replace(self, old: Sequence[str], new: Sequence[LakeFile]) -> None:
        """Replace files by others with the same rows. Error: ``Overtaken``."""
        self.change(Change(_stored(new), removed=old))

    def change(self, change: "Change") -> None:
        """Write one manifest of a change, after concurrent ones of others.

        Errors: ``Overtaken`` when one of them has moved the same positions or removed the same
        files, ``LakeUnavailable``.
        """
        with reaching(self.url):
            for _ in range(_TRIES_MAX):
                self._check(change)
                if self._create(change):
                    return
        raise LakeUnavailable(f"{self.url}: others commit faster than rows are added")

    def dead_letters(self) -> "ParquetLake":
        """See ``Lake``."""
        return ParquetLake(bad_url(self.url), self._job_id, BAD_KIND)

    def _position(self, name: str) -> int | None:
        return self._content.positions.get(self._job_id, {}).get(name)

    def _check(self, change: "Change") -> None:
        is_moved = self._expected.differ(change.positions)
        if is_moved or any(path not in self._content.files for path in change.removed):
            raise overtaken(self.url, self._job_id)

    def _create(self, change: "Change", columns: Mapping[str, str] | None = None) -> bool:
        """Write the next manifest; if its number exists, read that one and return False."""
        number = self._content.number + 1
        manifest = self._manifest(change, number)
        if columns is not None:
            manifest["columns"] = dict(columns)
        path = manifest_path(number)
        is_ours = self._place.create_whole(path, json.dumps(manifest).encode())
        found = manifest if is_ours else read_manifest(self._place, number)
        self._content.follow(found)
        # A request whose answer was lost is repeated, and then finds its own object.
        return bool(found["commit"] == manifest["commit"])

    def _manifest(self, change: "Change", number: int) -> Json:
        manifest: Json = {
            "format": FORMAT,
            "number": number,
            "commit": uuid4().hex,
            "unix_ms": SystemClock().unix_ms(),
            "job": self._job_id,
            "files": [one._asdict() for one in change.added],
            "removed": list(change.removed),
            "deleted": list(change.deleted),
            "positions": {self._job_id: dict(change.positions)},
        }
        if number % WHOLE_EVERY == 0:
            whole = Content(
                files=dict(self._content.files),
                positions={name: dict(one) for name, one in self._content.positions.items()},
                replaced=dict(self._content.replaced),
            )
            whole.follow(manifest)
            manifest |= {
                "columns": self._content.columns,
                "files": [one._asdict() for one in whole.files.values()],
                "positions": whole.positions,
                "replaced": whole.replaced,
            }
        return manifest


class Change(NamedTuple):
    """Content of a manifest. ``deleted``: those of the files replaced earlier."""

    added: Sequence[StoredFile] = ()
    removed: Sequence[str] = ()
    deleted: Sequence[str] = ()
    positions: Mapping[str, int] = {}


def files(url: str, *, topic: str | None = None) -> list[str]:
    """Return the files of the table at ``url`` as paths or URLs for Parquet readers.

    ``topic``: only its files. Errors: ``BadPlace``, ``LakeUnavailable``, ``RequestError``
    without a table.
    """
    with reaching(url):
        content = read_content(open_place(url))
    if content.number < 0:
        raise RequestError(f"{url} is no table of Parquet files with manifests in {FOLDER}")
    base = url.rstrip("/")
    return [
        f"{base}/{one.path}"
        for one in content.files.values()
        if topic is None or one.topic == topic
    ]


def read_content(place: TablePlace) -> Content:
    """Return the table as it is now. Errors: ``OSError``, ``LakeUnavailable``."""
    numbers = [int(name[:_DIGITS]) for name in place.names(FOLDER) if _is_manifest(name)]
    content = Content()
    if not numbers:
        return content
    last = max(numbers)
    for number in range(last - last % WHOLE_EVERY, last + 1):
        content.follow(read_manifest(place, number))
    return content


def read_manifest(place: TablePlace, number: int) -> Json:
    """Return a manifest. Errors: ``OSError``, ``LakeUnavailable`` for an invalid one."""
    path = manifest_path(number)
    try:
        manifest: Json = json.loads(place.read(path))
        found = manifest["format"]
    except (ValueError, KeyError, TypeError):
        raise LakeUnavailable(f"{place.root}/{path} is damaged: restore it") from None
    if found != FORMAT:
        raise LakeUnavailable(
            f"{place.root}/{path} has format {found}: a newer version wrote it"
        )
    return manifest


def manifest_path(number: int) -> str:
    """Return the path of a manifest below the table.

    >>> manifest_path(7)
    '_headgate/00000000000000000007.json'
    """
    return f"{FOLDER}/{number:0{_DIGITS}}.json"


def _is_manifest(name: str) -> bool:
    return name.endswith(".json") and name[:_DIGITS].isdigit()


def _stored(files: Sequence[LakeFile]) -> list[StoredFile]:
    return [
        StoredFile(one.path, one.topic, one.day, one.row_count, one.size_bytes) for one in files
    ]
