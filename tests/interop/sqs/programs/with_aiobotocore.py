"""aiobotocore: the JSON protocol from asyncio, on a loop in a thread of its own."""

import asyncio
import threading
from concurrent.futures import Future
from contextlib import AsyncExitStack
from typing import Any

from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore import xform_name
from botocore.exceptions import ClientError

from tests.interop.sqs.programs.client_api import Api, Endpoint, Params, Result
from tests.interop.sqs.programs.with_boto3 import refusal


class Aiobotocore(Api):
    """One client; all calls are tasks of one loop."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._stack = AsyncExitStack()
        self._client: Any = self._run(self._open()).result()

    def _run(self, coroutine: Any) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    async def _open(self) -> Any:
        config = AioConfig(retries={"total_max_attempts": 1}, max_pool_connections=32)
        made = get_session().create_client(
            "sqs",
            endpoint_url=self.endpoint.url,
            region_name=self.endpoint.region,
            aws_access_key_id=self.endpoint.key_id,
            aws_secret_access_key=self.endpoint.secret,
            config=config,
        )
        return await self._stack.enter_async_context(made)

    async def _perform(self, action: str, params: Params) -> Result:
        try:
            found: Result = await getattr(self._client, xform_name(action))(**params)
        except ClientError as error:
            raise refusal(error) from None
        del found["ResponseMetadata"]
        return found

    def perform(self, action: str, params: Params) -> Result:
        """Await the client's method of the action's name on its loop."""
        found: Result = self._run(self._perform(action, params)).result()
        return found

    def close(self) -> None:
        """Close the client, then its loop."""
        super().close()
        self._run(self._stack.aclose()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
