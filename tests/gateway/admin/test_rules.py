"""Rules over the admin endpoint: those of the config file are shown, and stay."""

import asyncio
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from gateway.auth.rules import RuleBook
from gateway.cli.admin_client import Refused
from tests.gateway.admin.kernel_with_admin import running_admin

STATIC = '[{principal = "bob", operation = "write", pattern = "prefix", name = "t"}]'
MQTT_RULE = {
    "effect": "deny",
    "operation": "subscribe",
    "resource": "mqtt_topic",
    "pattern": "filter",
    "name": "ä/%u/+ &#",
}


async def test_the_way_of_a_rule(tmp_path: Path) -> None:
    async with running_admin(tmp_path, f"auth.rules={STATIC}") as setup:
        send = setup.client.send
        rule = MQTT_RULE | {"name": "ä/%u/ &/#", "client": "dev/1"}
        made = await asyncio.to_thread(partial(send, "POST", "rules", body=rule))
        book = cast("RuleBook", setup.kernel.authorizer)
        [kept] = book.stored_rules()
        listed = (await asyncio.to_thread(setup.client.get, "rules"))["rules"]

        assert made == rule | {
            "principal": "*", "protocol": "*", "host": "*", "source": "store",
        }  # fmt: skip
        assert (kept.pattern, kept.client, kept.allow) == ("ä/%u/ &/#", "dev/1", False)
        assert listed[1] == made
        assert (listed[0]["name"], listed[0]["source"]) == ("t", "config")
        static = {name: value for name, value in listed[0].items() if name != "source"}
        with pytest.raises(Refused, match="PolicyViolation: the rule is set in the config"):
            await asyncio.to_thread(partial(send, "DELETE", "rules", query=static))
        with pytest.raises(Refused, match="RuleNotFound"):
            await asyncio.to_thread(
                partial(send, "DELETE", "rules", query=MQTT_RULE | {"name": "#"})
            )
        await asyncio.to_thread(partial(send, "DELETE", "rules", query=rule))
        assert book.stored_rules() == []


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        ({"name": "ä/+ &#"}, "whole level"),
        ({"effect": "perhaps"}, "effect: "),
        ({"color": "red"}, "color: "),
    ],
)
async def test_a_rule_without_sense_is_refused(
    tmp_path: Path, change: dict[str, str], hint: str
) -> None:
    async with running_admin(tmp_path) as setup:
        asked = {"body": MQTT_RULE | change}, {"query": MQTT_RULE | change}
        for method, rule in zip(("POST", "DELETE"), asked, strict=True):
            with pytest.raises(Refused, match=f"InvalidRequest: .*{hint}"):
                await asyncio.to_thread(partial(setup.client.send, method, "rules", **rule))
