"""A running SQS endpoint in this process, and boto3 in front of it."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Literal, cast

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from adapters.sqs.config import SqsConfig
from adapters.sqs.server import SqsAdapter
from gateway.clock import ManualClock
from gateway.config.auth import AuthRule
from gateway.config.settings import NodeConfig, Settings
from gateway.kernel import Kernel
from gateway.model import DEFAULT_NAMESPACE, TopicName
from gateway.queues.manager import Queue
from tests.support.held_storage import HeldStorage
from tests.support.live_kernel import NO_USERS, running_kernel

ACCOUNT = "000000000000"
REGION = "us-east-1"
UNKNOWN_KEY = ("AKIAUNKNOWN000000000", "secret")
SESSION = boto3.session.Session(region_name=REGION)  # one, since it reads the model once
ONE_ATTEMPT = Config(retries={"total_max_attempts": 1}, parameter_validation=False)


class Refused:
    """A refusal as a client sees it: the older code, which SDKs show, and the shape's name."""

    def __init__(self, error: ClientError) -> None:
        self.code: str = error.response["Error"]["Code"]
        self.message: str = error.response["Error"]["Message"]
        self.status: int = error.response["ResponseMetadata"]["HTTPStatusCode"]
        self.exception = type(error).__name__


class Live:
    """A running endpoint, the kernel below it, and clients."""

    def __init__(self, adapter: SqsAdapter, kernel: Kernel, storage: HeldStorage) -> None:
        self.adapter = adapter
        self.kernel = kernel
        self.storage = storage
        self.clock = cast("ManualClock", kernel.clock)
        self.clients: list[Any] = []
        self.url = f"http://127.0.0.1:{adapter.listener.port}"
        self.boto = self.client()

    def client(self, key: tuple[str, str] = UNKNOWN_KEY, region: str = REGION) -> Any:
        """Return a boto3 client. It does not check parameters, so that the endpoint must."""
        made = SESSION.client(
            "sqs",
            endpoint_url=self.url,
            aws_access_key_id=key[0],
            aws_secret_access_key=key[1],
            region_name=region,
            config=ONE_ATTEMPT,
        )
        self.clients.append(made)
        return made

    async def user(self, name: str, account: str = "") -> Any:
        """Return a client that signs with the key of a user."""
        key = await self.kernel.access_keys.add(name, account=account)
        return self.client((key.key_id, key.secret))

    async def call(self, action: str, *, by: Any = None, **params: Any) -> Any:
        """Return what a client's method, such as ``create_queue``, returns."""
        answer = await asyncio.to_thread(getattr(by or self.boto, action), **params)
        del answer["ResponseMetadata"]
        return answer

    async def refused(self, action: str, *, by: Any = None, **params: Any) -> Refused:
        """Return the error that a client's method raises."""
        try:
            answer = await self.call(action, by=by, **params)
        except ClientError as error:
            return Refused(error)
        raise AssertionError(f"{action} was not refused but answered {answer}")

    async def queue(self, name: str = "orders", *, by: Any = None, **attributes: str) -> str:
        """Make a queue, return its URL."""
        if name.endswith(".fifo"):
            attributes["FifoQueue"] = "true"
        made = await self.call("create_queue", by=by, QueueName=name, Attributes=attributes)
        return str(made["QueueUrl"])

    async def attributes(self, url: str, *names: str) -> dict[str, str]:
        answer = await self.call(
            "get_queue_attributes", QueueUrl=url, AttributeNames=list(names or ("All",))
        )
        return dict(answer.get("Attributes", {}))

    def arn(self, name: str) -> str:
        return f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name}"

    def kept(self, name: str = "orders", namespace: str = DEFAULT_NAMESPACE) -> Queue:
        """Return the gateway's queue of that name."""
        queue = self.kernel.queues.find(TopicName(namespace, name))
        assert queue is not None
        return queue


@contextlib.asynccontextmanager
async def running(
    tmp_path: Path,
    *,
    sqs: dict[str, Any] | None = None,
    queue: dict[str, Any] | None = None,
    rules: tuple[AuthRule, ...] = (),
    users: Mapping[str, str] = NO_USERS,
    default: Literal["allow", "deny"] = "allow",
) -> AsyncIterator[Live]:
    clock = ManualClock(time.time_ns() // 1_000_000)  # signatures have the time of day
    settings = Settings.model_validate(
        {"node": NodeConfig(data_dir=tmp_path), "queue": queue or {}}
    )
    parts = running_kernel(
        settings, clock, rules=rules, users=users, default=default, has_queues=True
    )
    async with parts as (kernel, storage):
        config = SqsConfig.model_validate({"bind": "127.0.0.1:0", **(sqs or {})})
        adapter = SqsAdapter(config, kernel)
        await adapter.start()
        live = Live(adapter, kernel, storage)
        try:
            yield live
        finally:
            storage.release()
            for client in live.clients:
                client.close()
            await adapter.stop()
