"""A real S3 server, in memory unless a module says otherwise, and what opens it."""

import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from unittest.mock import patch
from uuid import uuid4

import botocore.session
import pytest
from botocore.loaders import create_loader

from storage_adapters.s3.bucket import Bucket
from tests.storage_adapters.s3.buckets import Opened, opening
from tests.storage_adapters.s3.merging_setup import MergingSetup, NewSetup
from tests.storage_adapters.s3.stored_objects import StoredObjects
from tests.support.s3_proxy import S3Proxy
from tests.support.s3_servers import S3Server, moto

# Each session of boto3 would read the description of S3 anew, 0.12 s of processor time for each
# bucket that a test opens.
pytest.MonkeyPatch().setattr(botocore.session, "create_loader", cache(create_loader))


@pytest.fixture(scope="session")
def server_of_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """One server: to start one takes longer than most tests."""
    with moto(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture(scope="module")
def server(server_of_all: S3Server) -> Iterator[S3Server]:
    """S3 server with a bucket for each module; its credentials are in this process meanwhile."""
    with patch.dict(os.environ, server_of_all.env):
        yield replace(server_of_all, bucket=server_of_all.new_bucket())


@pytest.fixture
def proxy(server: S3Server) -> Iterator[S3Proxy]:
    with S3Proxy(server.endpoint_url) as running:
        yield running


@pytest.fixture
def opened(server: S3Server, proxy: S3Proxy) -> Iterator[Opened]:
    """Open a bucket behind the proxy with other settings."""
    waits = {"request_timeout_ms": 10_000, "retry_ms_max": 20_000}
    with opening(server.behind(proxy.url), **waits) as open_with:
        yield open_with


@pytest.fixture
def bucket(opened: Opened) -> Bucket:
    return opened()


@pytest.fixture
def key() -> str:
    return f"{uuid4().hex}/a"


@pytest.fixture
async def shelf(server: S3Server, tmp_path: Path) -> AsyncIterator[StoredObjects]:
    shelf = StoredObjects(server, tmp_path)
    yield shelf
    shelf.close()


@pytest.fixture
async def new_setup(server: S3Server, tmp_path: Path) -> AsyncIterator[NewSetup]:
    """Open a setup on the content that earlier ones left in the bucket."""
    setups: list[MergingSetup] = []
    prefix = f"{uuid4().hex}/"

    async def make(**settings: object) -> MergingSetup:
        setups.append(MergingSetup(server, tmp_path, prefix, **settings))
        return await setups[-1].open()

    yield make
    for setup in setups:
        await setup.close()
