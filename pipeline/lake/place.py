"""Place of a lake table: a folder, or a prefix of a bucket."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit
from uuid import uuid4

import pyarrow as pa
from pyarrow import fs

from gateway.errors import GatewayError, RequestError

if TYPE_CHECKING:  # only writing manifests into a bucket needs it
    from botocore.client import BaseClient

_S3: Final = "s3"
_TAKEN: Final = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "412", "409"})
_ENDPOINT: Final = "AWS_ENDPOINT_URL"


class BadPlace(RequestError):
    """Neither a path nor a URL of a kind that tables can be written to."""


class LakeUnavailable(GatewayError):
    """The folder, bucket or catalog of a table refuses or does not answer."""


class TablePlace(NamedTuple):
    """A file system and the folder of a table in it. Errors of all calls: ``OSError``."""

    files: fs.FileSystem
    root: str

    @property
    def is_local(self) -> bool:
        """Whether the place is a folder of this machine."""
        return isinstance(self.files, fs.LocalFileSystem)

    def create(self, path: str) -> pa.NativeFile:
        """Open a new file below the table, creating its folders."""
        whole = f"{self.root}/{path}"
        if self.is_local:
            self.files.create_dir(whole.rsplit("/", 1)[0], recursive=True)
        return self.files.open_output_stream(whole)

    def sync(self, path: str) -> None:
        """Sync a closed file, since a commit that names it must not outlive it.

        A bucket has stored it durably before its answer.
        """
        if self.is_local:
            whole = Path(f"{self.root}/{path}")
            for one in (whole, whole.parent):
                _sync(one)

    def has_folder(self, path: str) -> bool:
        """Return whether the folder exists, or the prefix has an object."""
        return bool(
            self.files.get_file_info(f"{self.root}/{path}").type == fs.FileType.Directory
        )

    def names(self, folder: str) -> list[str]:
        """Return the sorted names of a folder's files; none for a missing folder."""
        selector = fs.FileSelector(f"{self.root}/{folder}", allow_not_found=True)
        return sorted(
            one.base_name for one in self.files.get_file_info(selector) if one.is_file
        )

    def read(self, path: str) -> bytes:
        """Return a whole file."""
        with self.files.open_input_stream(f"{self.root}/{path}") as stream:
            return bytes(stream.read())

    def delete(self, path: str) -> None:
        """Remove a file, which may be missing."""
        with suppress(FileNotFoundError):
            self.files.delete_file(f"{self.root}/{path}")

    def create_whole(self, path: str, data: bytes) -> bool:
        """Create a file with this content, durably; False when the name exists.

        It is never readable in part. In a bucket, False can also mean an own file of a request
        whose answer was lost.
        """
        whole = f"{self.root}/{path}"
        return _link(Path(whole), data) if self.is_local else _put(whole, data)


def open_place(url: str) -> TablePlace:
    """Return the place of ``url``. Error: ``BadPlace``.

    Credentials, region and endpoint of S3 come from the standard places of AWS tools;
    ``AWS_ENDPOINT_URL`` names a server other than Amazon's.
    """
    parts = urlsplit(url)
    if not parts.scheme:
        return TablePlace(fs.LocalFileSystem(), str(Path(url).absolute()))
    if parts.scheme == "file":
        return TablePlace(fs.LocalFileSystem(), parts.path)
    if parts.scheme == _S3 and parts.netloc:
        endpoint = os.environ.get(_ENDPOINT, "")
        given = urlsplit(endpoint)
        options = (
            {"endpoint_override": given.netloc, "scheme": given.scheme} if endpoint else {}
        )
        return TablePlace(fs.S3FileSystem(**options), f"{parts.netloc}{parts.path}".rstrip("/"))
    raise BadPlace(f"{url!r} is neither a folder nor like s3://bucket/folder")


def storage_options(url: str) -> dict[str, str]:
    """Return options of delta-rs in addition to the environment."""
    if urlsplit(url).scheme != _S3:
        return {}
    plain = os.environ.get(_ENDPOINT, "").startswith("http://")
    return {"aws_conditional_put": "etag", **({"aws_allow_http": "true"} if plain else {})}


@contextmanager
def reaching(url: str) -> Iterator[None]:
    """Convert errors of file systems and buckets to a one-line ``LakeUnavailable``."""
    try:
        yield
    except OSError as error:
        raise unavailable(url, error) from error


def unavailable(url: str, error: Exception) -> LakeUnavailable:
    """Return the error for a place that refuses, with the first line of its message."""
    said = str(error).strip() or type(error).__name__
    return LakeUnavailable(f"{url}: {said.splitlines()[0]}")


def _link(path: Path, data: bytes) -> bool:
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f".{uuid4().hex}")
    try:
        with half.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.link(half, path)
    except FileExistsError:
        return False
    finally:
        half.unlink(missing_ok=True)
    _sync(path.parent)
    return True


def _sync(path: Path) -> None:
    """Sync a file, or the names in a folder. Error: ``OSError``."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _put(path: str, data: bytes) -> bool:
    from botocore.exceptions import BotoCoreError, ClientError

    bucket, _, key = path.partition("/")
    try:
        _s3_client().put_object(Bucket=bucket, Key=key, Body=data, IfNoneMatch="*")
    except ClientError as error:
        if error.response.get("Error", {}).get("Code") in _TAKEN:
            return False
        raise OSError(str(error)) from error
    except BotoCoreError as error:
        raise OSError(str(error)) from error
    return True


def _s3_client() -> "BaseClient":
    import boto3
    from botocore.config import Config

    # Other servers rarely support the bucket's name as part of the host name.
    style: dict[str, Any] = {"addressing_style": "path"} if os.environ.get(_ENDPOINT) else {}
    return boto3.client("s3", config=Config(s3=style))


def file_io_options(url: str) -> dict[str, str]:
    """Return options of pyiceberg in addition to the environment."""
    if urlsplit(url).scheme != _S3:
        return {}
    endpoint = os.environ.get(_ENDPOINT, "")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION", "")
    named = {"s3.endpoint": endpoint, "s3.region": region}
    return {name: value for name, value in named.items() if value}
