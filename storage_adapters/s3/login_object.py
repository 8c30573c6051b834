"""The object in the bucket that says that everybody must log in."""

from typing import Final

from storage_adapters.s3.bucket import Bucket
from storage_adapters.s3.config import S3Config

LOGIN_REQUIRED: Final = "login-required.json"
_BODY: Final = b'{"login_required": true}\n'


def is_login_required(config: S3Config, bucket: Bucket) -> bool:
    """Say whether everybody had to log in when the node ran last: a HEAD. In a thread."""
    return bucket.head(f"{config.prefix}{LOGIN_REQUIRED}") is not None


def keep_login_required(config: S3Config, bucket: Bucket, *, required: bool) -> None:
    """Put or delete the object: a HEAD, and where it has changed one more request. In a thread.

    Errors: ``StorageUnavailable``.
    """
    if required is is_login_required(config, bucket):
        return
    key = f"{config.prefix}{LOGIN_REQUIRED}"
    if required:
        bucket.put(key, [_BODY])
    else:
        bucket.delete([key])
