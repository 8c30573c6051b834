"""A bucket behind TLS whose certificate is of an authority that only we know."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage_adapters.s3.bucket import BucketRefused, BucketUnavailable
from tests.storage_adapters.s3.buckets import Opened, opening
from tests.support.certificates import make_certificate
from tests.support.s3_servers import S3Server, versitygw


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    folder = tmp_path_factory.mktemp("tls")
    with versitygw(folder, certificate=make_certificate(folder)) as running:
        yield running


@pytest.fixture
def opened(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opened]:
    for name, value in server.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)
    with opening(server, retry_ms_max=0) as opened:
        yield opened


def test_the_authority_of_the_config_is_trusted(server: S3Server, opened: Opened) -> None:
    bucket = opened(ca_file=server.ca_file)

    bucket.check()
    bucket.put("one", [b"over ", b"TLS"])

    assert bucket.get("one", 0, 8) == b"over TLS"


def test_the_authorities_of_aws_tools_are_trusted(
    server: S3Server, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", server.ca_file)

    opened().check()


def test_nobody_else_is_trusted_and_the_text_says_what_to_do(
    opened: Opened, tmp_path: Path
) -> None:
    another, _ = make_certificate(tmp_path)
    for settings in ({}, {"ca_file": str(another)}):
        with pytest.raises(BucketUnavailable, match=r"storage\.ca_file"):
            opened(**settings).check()


def test_a_file_that_is_not_there_is_named(opened: Opened, tmp_path: Path) -> None:
    for missing in (tmp_path / "ca.pem", tmp_path):
        with pytest.raises(BucketRefused, match=rf"storage\.ca_file: {missing} is not a file"):
            opened(ca_file=os.fspath(missing)).check()
