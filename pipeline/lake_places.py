"""Where a lake table lies: a folder, or a prefix of a bucket."""

import os
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from gateway.errors import RequestError

_S3: Final = "s3"


class BadPlace(RequestError):
    """Neither a path nor a URL of a kind that tables can be written to."""


class Place(NamedTuple):
    """A file system and the folder of a table in it."""

    files: fs.FileSystem
    root: str

    def create(self, path: str) -> pa.NativeFile:
        """Open a new file below the table, its folders made where there are such."""
        whole = f"{self.root}/{path}"
        if isinstance(self.files, fs.LocalFileSystem):
            self.files.create_dir(whole.rsplit("/", 1)[0], recursive=True)
        return self.files.open_output_stream(whole)


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
        endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
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
    plain = os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")
    return {"aws_conditional_put": "etag", **({"aws_allow_http": "true"} if plain else {})}
