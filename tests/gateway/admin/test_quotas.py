"""Quotas over the admin endpoint: those of the config file are shown, and stay."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from features.quota.model import DEFAULT, Entity, QuotaKey
from gateway.cli.admin_client import Refused
from tests.gateway.admin.kernel_with_admin import running_admin

STATIC = '[{ip = "<default>", connection_creation_rate = 5}]'


async def test_the_way_of_a_quota(tmp_path: Path) -> None:
    async with running_admin(tmp_path, f"quotas={STATIC}") as setup:

        async def send(method: str, **asked: Any) -> Any:
            return await asyncio.to_thread(
                partial(setup.client.send, method, "quotas", **asked)
            )

        who = {"user": "ä/1", "client_id": "<default>"}
        limits = {"producer_byte_rate": 1024.0, "request_percentage": 2.5}
        made = await send("PUT", body=who | {"limits": limits})
        assert made == who | {"ip": None, "limits": limits, "source": "store"}
        quotas = setup.kernel.quotas
        assert quotas.limits_of(Entity("ä/1", DEFAULT)) == {
            QuotaKey.PRODUCER_BYTE_RATE: 1024.0,
            QuotaKey.REQUEST_PERCENTAGE: 2.5,
        }
        listed = (await asyncio.to_thread(setup.client.get, "quotas"))["quotas"]
        assert listed[1] == made
        assert (listed[0]["ip"], listed[0]["source"]) == ("<default>", "config")
        with pytest.raises(
            Refused, match="PolicyViolation: the quotas of ip <default> are set"
        ):
            await send("DELETE", query={"ip": "<default>"})
        with pytest.raises(Refused, match="QuotaNotFound"):
            await send("DELETE", query={"user": "ä/1"})
        less = await send("PUT", body=who | {"limits": {"producer_byte_rate": None}})
        assert less["limits"] == {"request_percentage": 2.5}
        await send("DELETE", query=who)
        assert quotas.limits_of(Entity("ä/1", DEFAULT)) == {}


@pytest.mark.parametrize(
    ("body", "hint"),
    [
        ({"user": "a", "limits": {}}, "names none"),
        ({"user": "a", "limits": {"producer_byte_rate": 0}}, "greater than 0"),
        ({"limits": {"producer_byte_rate": 1}}, "empty client quota entity"),
        ({"user": "a", "ip": "::1", "limits": {"producer_byte_rate": 1}}, "combination"),
        ({"color": "red", "limits": {}}, "color: "),
    ],
)
async def test_a_quota_without_sense_is_refused(
    tmp_path: Path, body: dict[str, Any], hint: str
) -> None:
    async with running_admin(tmp_path) as setup:
        with pytest.raises(Refused, match=hint):
            await asyncio.to_thread(partial(setup.client.send, "PUT", "quotas", body=body))
