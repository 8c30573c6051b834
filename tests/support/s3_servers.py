"""Real S3 servers on 127.0.0.1: versitygw (Go, objects are files) and moto (in memory)."""

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from gateway.testing.ports import free_port
from gateway.testing.process import Program, ProgramFailed
from tests.support.s3_toolchain import versitygw_program
from tests.support.sqs_toolchain import moto_server
from tests.support.waiting import wait_until

REGION: Final = "us-east-1"
_ACCESS_KEY: Final = "test-access"
_SECRET_KEY: Final = "test-secret-that-no-message-shows"
_READY_S_MAX: Final = 180.0
_NUMBERS: Final = itertools.count(1)


@dataclass(frozen=True)
class S3Server:
    """A server that runs, with a bucket of its own. ``env``: what a client of it is told.

    ``ca_file``: who vouches for it, empty without TLS.
    """

    endpoint_url: str
    access_key: str
    secret_key: str
    bucket: str
    program: Program
    env: Mapping[str, str] = field(default_factory=dict)
    ca_file: str = ""

    def client(self) -> Any:
        """Return boto3's client, to look at the bucket beside what is tested."""
        return boto3.session.Session().client(
            "s3",
            endpoint_url=self.endpoint_url,
            verify=self.ca_file or None,
            region_name=REGION,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}),
        )

    def new_bucket(self) -> str:
        """Make one more bucket, and return its name."""
        name = f"headgate-{next(_NUMBERS)}"
        with contextlib.closing(self.client()) as client:
            client.create_bucket(Bucket=name)
        return name

    def behind(self, proxy_url: str) -> Self:
        """Return the same server, reached through a proxy."""
        return replace(self, endpoint_url=proxy_url)

    def settings(self, *, prefix: str = "") -> dict[str, object]:
        """Return what a gateway that stores here is given with ``--set``."""
        return {
            "storage.adapter": "s3",
            "storage.bucket": self.bucket,
            "storage.prefix": prefix,
            "storage.endpoint_url": self.endpoint_url,
            "storage.region": REGION,
            "storage.addressing": "path",
        }


@contextlib.contextmanager
def versitygw(
    folder: Path, *, certificate: tuple[Path, Path] | None = None
) -> Iterator[S3Server]:
    """Run versitygw until the block ends. Objects are files below ``folder``.

    ``certificate``: the files of a certificate, an authority of its own, and of its key: with TLS.
    Errors: ``ToolMissing`` without Go.
    """
    port = free_port()
    data = folder / "versitygw"
    data.mkdir(parents=True, exist_ok=True)
    cert, key = certificate or ("", "")
    tls = ["--cert", cert, "--key", key] if certificate else []
    command: list[str | Path] = [
        versitygw_program(), "--port", f"127.0.0.1:{port}", "--region", REGION, "--quiet", *tls,
        "posix", "--concurrency", "256", data,
    ]  # fmt: skip
    env = {"ROOT_ACCESS_KEY_ID": _ACCESS_KEY, "ROOT_SECRET_ACCESS_KEY": _SECRET_KEY}
    with _running(command, port, folder, env, ca_file=str(cert)) as server:
        yield server


@contextlib.contextmanager
def moto(folder: Path) -> Iterator[S3Server]:
    """Run moto's server until the block ends. ``folder`` is where nothing disturbs it."""
    port = free_port()
    command = [*moto_server(), "-H", "127.0.0.1", "-p", str(port)]
    with _running(command, port, folder, {}) as server:
        yield server


SERVERS: Final = {"versitygw": versitygw, "moto": moto}


@contextlib.contextmanager
def _running(
    command: Sequence[str | Path],
    port: int,
    folder: Path,
    env: Mapping[str, str],
    *,
    ca_file: str = "",
) -> Iterator[S3Server]:
    program = Program(command, cwd=folder, env=env)
    server = S3Server(
        endpoint_url=f"{'https' if ca_file else 'http'}://127.0.0.1:{port}",
        ca_file=ca_file,
        access_key=_ACCESS_KEY,
        secret_key=_SECRET_KEY,
        bucket=f"headgate-{next(_NUMBERS)}",
        program=program,
        env={
            "AWS_ACCESS_KEY_ID": _ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": _SECRET_KEY,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",  # no look for a role of this machine
            "AWS_CONFIG_FILE": str(folder / "no-aws-config"),
            "AWS_SHARED_CREDENTIALS_FILE": str(folder / "no-aws-credentials"),
        },
    )
    try:
        with contextlib.closing(server.client()) as client:
            wait_until(
                lambda: not program.is_running or _has_bucket(client, server.bucket),
                within_s=_READY_S_MAX,
                what=f"{command[0]} makes a bucket",
            )
        if not program.is_running:
            msg = f"{command[:4]} ended\n{program.tail()}"
            raise ProgramFailed(msg)
        yield server
    finally:
        program.kill()  # there is nothing that it would keep


def _has_bucket(client: Any, bucket: str) -> bool:
    try:
        client.create_bucket(Bucket=bucket)
    except ClientError as error:
        return bool(error.response["Error"]["Code"] == "BucketAlreadyOwnedByYou")
    except BotoCoreError:
        return False
    return True
