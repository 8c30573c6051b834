"""Where a lake table lies: a folder, or a prefix of a bucket."""

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

if TYPE_CHECKING:  # only what writes manifests into a bucket needs it
    from botocore.client import BaseClient

_S3: Final = "s3"
_TAKEN: Final = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "412", "409"})
_ENDPOINT: Final = "AWS_ENDPOINT_URL"


class BadPlace(RequestError):
    """Neither a path nor a URL of a kind that tables can be written to."""


class LakeUnavailable(GatewayError):
    """The folder, the bucket or the catalog of a table refuses or does not answer."""


class Place(NamedTuple):
    """A file system and the folder of a table in it. Errors of all calls: ``OSError``."""

    files: fs.FileSystem
    root: str

    @property
    def is_local(self) -> bool:
        """Whether it is a folder of this machine."""
        return isinstance(self.files, fs.LocalFileSystem)

    def create(self, path: str) -> pa.NativeFile:
        """Open a new file below the table, its folders made where there are such."""
        whole = f"{self.root}/{path}"
        if self.is_local:
            self.files.create_dir(whole.rsplit("/", 1)[0], recursive=True)
        return self.files.open_output_stream(whole)

    def sync(self, path: str) -> None:
        """Make a file that was closed durable: a commit that names it must not outlive it.

        A bucket has done so before it answered.
        """
        if self.is_local:
            whole = Path(f"{self.root}/{path}")
            for one in (whole, whole.parent):
                _sync(one)

    def has_folder(self, path: str) -> bool:
        """Whether there is a folder, or an object below the prefix."""
        return bool(
            self.files.get_file_info(f"{self.root}/{path}").type == fs.FileType.Directory
        )

    def names(self, folder: str) -> list[str]:
        """Return the names of the files of a folder, sorted; none where there is no folder."""
        selector = fs.FileSelector(f"{self.root}/{folder}", allow_not_found=True)
        return sorted(
            one.base_name for one in self.files.get_file_info(selector) if one.is_file
        )

    def read(self, path: str) -> bytes:
        """Return a whole file."""
        with self.files.open_input_stream(f"{self.root}/{path}") as stream:
            return bytes(stream.read())

    def delete(self, path: str) -> None:
        """Remove a file. It may be gone already."""
        with suppress(FileNotFoundError):
            self.files.delete_file(f"{self.root}/{path}")

    def create_whole(self, path: str, data: bytes) -> bool:
        """Make a file with this content, durably; False when there is one of the name.

        There is never a moment at which a part of it can be read. In a bucket False can also
        mean that it is our own, of a request whose answer was lost.
        """
        whole = f"{self.root}/{path}"
        return _link(Path(whole), data) if self.is_local else _put(whole, data)


def open_place(url: str) -> Place:
    """Return where ``url`` points to. Error: ``BadPlace``.

    Credentials, region and endpoint of S3 come from where all tools of AWS look for them;
    ``AWS_ENDPOINT_URL`` names another server than Amazon's.
    """
    parts = urlsplit(url)
    if not parts.scheme:
        return Place(fs.LocalFileSystem(), str(Path(url).absolute()))
    if parts.scheme == "file":
        return Place(fs.LocalFileSystem(), parts.path)
    if parts.scheme == _S3 and parts.netloc:
        endpoint = os.environ.get(_ENDPOINT, "")
        given = urlsplit(endpoint)
        options = (
            {"endpoint_override": given.netloc, "scheme": given.scheme} if endpoint else {}
        )
        return Place(fs.S3FileSystem(**options), f"{parts.netloc}{parts.path}".rstrip("/"))
    raise BadPlace(f"{url!r} is neither a folder nor like s3://bucket/folder")


def storage_options(url: str) -> dict[str, str]:
    """Return what delta-rs is to be told beyond what it finds in the environment."""
    if urlsplit(url).scheme != _S3:
        return {}
    plain = os.environ.get(_ENDPOINT, "").startswith("http://")
    return {"aws_conditional_put": "etag", **({"aws_allow_http": "true"} if plain else {})}


@contextmanager
def reaching(url: str) -> Iterator[None]:
    """Turn what file systems and buckets raise into ``LakeUnavailable``, one line."""
    try:
        yield
    except OSError as error:
        raise unavailable(url, error) from error


def unavailable(url: str, error: Exception) -> LakeUnavailable:
    """Return the error of a place that refuses, with the first line of what it said."""
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
    """Make what is in a file, or the names in a folder, durable. Error: ``OSError``."""
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

    # A server of one's own is rarely found by a bucket's name in front of its own.
    style: dict[str, Any] = {"addressing_style": "path"} if os.environ.get(_ENDPOINT) else {}
    return boto3.client("s3", config=Config(s3=style))


def file_io_options(url: str) -> dict[str, str]:
    """Return what pyiceberg is to be told beyond what it finds in the environment."""
    if urlsplit(url).scheme != _S3:
        return {}
    endpoint = os.environ.get(_ENDPOINT, "")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION", "")
    named = {"s3.endpoint": endpoint, "s3.region": region}
    return {name: value for name, value in named.items() if value}
