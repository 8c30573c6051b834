"""Configuration of the boto3 client: one try, own timeouts, own checksums only."""

import hashlib
from pathlib import Path
from typing import Any, Final

import boto3
from botocore.awsrequest import AWSRequest
from botocore.config import Config

from storage_adapters.s3.bucket_checksums import content_md5
from storage_adapters.s3.bucket_errors import BucketRefused
from storage_adapters.s3.config import S3Config

READERS_MAX: Final = 32  # connections beside those of uploads; further ones serve one request
AT_ONCE_BYTES: Final = 128 * 1024  # a larger body is sent after the server's "100 Continue"


def make_client(config: S3Config) -> Any:  # noqa: ANN401 - boto3 has no types
    """Create a client; boto3's chain looks up the credentials again.

    Errors: those of botocore, for a missing profile or region; ``BucketRefused``.
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
            # ``bucket_checksums`` chooses the checksum.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            # The checksum's header is signed and covers the body: no SHA-256 of the body is needed.
            s3={"addressing_style": config.addressing, "payload_signing_enabled": False},
        ),
    )
    # botocore adds a CRC to deletes; other servers require an MD5, as older clients sent it.
    client.meta.events.register_first("before-sign.s3.DeleteObjects", _add_content_md5)
    client.meta.events.register_first("before-sign.s3.PutObject", _send_small_at_once)
    return client


def _add_content_md5(request: AWSRequest, **_: object) -> None:
    body = request.body or b""
    digest = hashlib.md5(body, usedforsecurity=False).digest()
    request.headers["Content-MD5"] = content_md5(digest)


def _send_small_at_once(request: AWSRequest, **_: object) -> None:
    """Send Expect: 100-continue only for bodies that are worth the round trip."""
    if int(request.headers.get("Content-Length", AT_ONCE_BYTES + 1)) <= AT_ONCE_BYTES:
        del request.headers["Expect"]
