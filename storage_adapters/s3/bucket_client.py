"""boto3's client as we want it: one try, our timeouts, no checksum but what we give it."""

import hashlib
from pathlib import Path
from typing import Any, Final

import boto3
from botocore.awsrequest import AWSRequest
from botocore.config import Config

from storage_adapters.s3.bucket_checksums import content_md5
from storage_adapters.s3.bucket_errors import BucketRefused
from storage_adapters.s3.config import S3Config

READERS_MAX: Final = 32  # connections beside those of uploads; above it, one is made each time
AT_ONCE_BYTES: Final = 128 * 1024  # a larger body is sent when the server says that it wants it


def make_client(config: S3Config) -> Any:  # noqa: ANN401 - boto3 has no types
    """Return a client whose credentials are looked up anew, by boto3's chain.

    Errors: those of botocore, for a profile or a region that is not there; ``BucketRefused``.
    """
    if config.ca_file and not Path(config.ca_file).is_file():
        raise BucketRefused(f"storage.ca_file: {config.ca_file} is not a file")
    session = boto3.session.Session(
        profile_name=config.profile or None, region_name=config.region or None
    )
    client = session.client(
        "s3",
        endpoint_url=config.endpoint_url or None,
        verify=config.ca_file or None,
        config=Config(
            connect_timeout=config.connect_timeout_ms / 1_000,
            read_timeout=config.request_timeout_ms / 1_000,
            retries={"total_max_attempts": 1, "mode": "standard"},
            max_pool_connections=config.uploads_max + READERS_MAX,
            tcp_keepalive=True,
            # Which checksum goes along, ``bucket_checksums`` says.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            # The checksum that goes along is signed, and covers the body: no SHA-256 of it.
            s3={"addressing_style": config.addressing, "payload_signing_enabled": False},
        ),
    )
    # botocore gives a CRC to deletes; servers of others want what was asked for before: an MD5.
    client.meta.events.register_first("before-sign.s3.DeleteObjects", _add_content_md5)
    client.meta.events.register_first("before-sign.s3.PutObject", _send_small_at_once)
    return client


def _add_content_md5(request: AWSRequest, **_: object) -> None:
    body = request.body or b""
    digest = hashlib.md5(body, usedforsecurity=False).digest()
    request.headers["Content-MD5"] = content_md5(digest)


def _send_small_at_once(request: AWSRequest, **_: object) -> None:
    """Ask first (Expect: 100-continue) only where that is worth a round trip."""
    if int(request.headers.get("Content-Length", AT_ONCE_BYTES + 1)) <= AT_ONCE_BYTES:
        del request.headers["Expect"]
