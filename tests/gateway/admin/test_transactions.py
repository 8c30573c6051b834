"""Transactions over the admin endpoint and its commands: list, describe, abort."""

import asyncio
import json
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from features.transactions import GroupRef, InitRequest, PartitionRef
from gateway.cli.admin_client import Refused
from gateway.cli.transactions import transactions_app
from gateway.metrics import Metrics
from gateway.model import TopicName
from gateway.transactions.journal import TransactionalId
from gateway.transactions.metrics import register_metrics
from tests.gateway.admin.kernel_with_admin import running_admin

NAME = TransactionalId("default", "pay/1")


async def test_open_transaction_is_shown_and_aborted(tmp_path: Path) -> None:
    async with running_admin(tmp_path) as setup:
        kernel = setup.kernel
        get = partial(asyncio.to_thread, setup.client.get)
        topic = await kernel.topics.create(TopicName("default", "t"), partitions=1, configs={})
        value = await kernel.transactions.init(NAME, InitRequest(60_000))
        idle = await get("transactions")
        kernel.transactions.add(
            NAME,
            value.producer_id,
            value.epoch,
            partitions=[PartitionRef(topic.uuid, 0)],
            groups=[GroupRef("default", "g")],
        )
        metrics = Metrics()
        register_metrics(metrics, kernel.transactions, kernel.clock)

        described = await get("transactions", "pay/1")
        open_count = metrics.read("headgate_transactions_open")
        abort = partial(setup.client.send, "POST", "transactions", "pay/1", "abort")
        aborted = await asyncio.to_thread(abort)

        assert [one["state"] for one in idle["transactions"]] == ["Empty"]
        assert idle["transactions"][0]["open_ms"] is None
        assert described["state"] == "Ongoing"
        assert described["partitions"] == [{"topic": "t", "partition": 0, "first_offset": None}]
        assert described["groups"] == ["g"]
        assert described["open_ms"] >= 0
        assert open_count == [((), 1)]
        assert (aborted["state"], aborted["epoch"]) == ("CompleteAbort", 1)
        with pytest.raises(Refused, match="TransactionNotFound"):
            await asyncio.to_thread(abort)
        with pytest.raises(Refused, match="TransactionNotFound"):
            await get("transactions", "nobody")


async def test_commands(tmp_path: Path) -> None:
    async with running_admin(tmp_path) as setup:
        value = await setup.kernel.transactions.init(NAME, InitRequest(60_000))
        group = [GroupRef("default", "g")]
        producer = value.producer_id, value.epoch
        setup.kernel.transactions.add(NAME, *producer, groups=group)
        at = ["--url", setup.server.url, "--token-file", str(setup.data_dir / "admin.token")]
        runner = CliRunner()

        async def run(*arguments: str) -> Result:
            invoke = partial(runner.invoke, transactions_app, [*arguments, *at])
            return await asyncio.to_thread(invoke)

        listed = await run("list", "--json")
        described = await run("describe", "pay/1")
        aborted = await run("abort", "pay/1", "--yes")

        assert [one["transactional_id"] for one in json.loads(listed.stdout)] == ["pay/1"]
        assert described.stdout.startswith("pay/1  Ongoing")
        assert aborted.exit_code == 0
        assert aborted.stdout.endswith("aborted; readers go on behind it\n")
