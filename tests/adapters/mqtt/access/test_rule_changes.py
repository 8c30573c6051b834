"""Rules that change: what they mean for publishers, subscriptions, wills, and who is away."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from adapters.mqtt.inflight.outbox import Inflight, Outbox
from adapters.mqtt.rule_types import FILTER, MQTT_TOPIC
from gateway.auth.ports import Operation, PatternKind, ResourceType, Rule
from gateway.auth.rules import RuleBook
from gateway.config.auth import AuthRule
from tests.adapters.mqtt.disk_faults import SlowReads
from tests.adapters.mqtt.live import PASSWORD
from tests.adapters.mqtt.publishing.test_delayed import due
from tests.adapters.mqtt.restartable_node import (
    Client,
    RestartableNode,
    payloads,
    restartable_node,
)
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import V3_1_1, V5, Kind, Prop, WillMessage
from tests.support.waiting import until

NOT_AUTHORIZED = 0x87
WILL_DELAY_S = 100


def rule(
    topic_filter: str, operation: Operation = Operation.ALL, *, allow: bool = False, **more: Any
) -> Rule:
    kind, pattern = MQTT_TOPIC, FILTER
    principal = more.pop("principal", "*")
    return Rule(principal, operation, kind, pattern, topic_filter, allow=allow, **more)


async def add(one: RestartableNode, *rules: Rule) -> None:
    await cast("RuleBook", one.kernel.authorizer).add_rules(rules)


async def delete(one: RestartableNode, *rules: Rule) -> None:
    await cast("RuleBook", one.kernel.authorizer).delete_rules(rules)


async def codes(client: Client, *topics: str) -> list[int]:
    """Publish to topics at QoS 1; return what PUBACK says of each."""
    found = []
    for topic in topics:
        client.send(wire.publish(topic, b"x", qos=1, packet_id=client.next_id()))
        found.append((await client.receive(Kind.PUBACK)).code)
    return found


async def granted(client: Client, *filters: str) -> list[int]:
    """Subscribe to filters at QoS 1; return what SUBACK says of each."""
    asked = [(one, 1) for one in filters]
    client.send(wire.subscribe(client.next_id(), asked, version=client.version))
    return list((await client.receive(Kind.SUBACK)).codes)


async def test_a_publisher_is_held_to_the_rules_of_the_moment(tmp_path: Path) -> None:
    denial = rule("a/#", Operation.WRITE, client="p")
    async with restartable_node(tmp_path) as one:
        publisher, other = await one.client("p"), await one.client("q")
        seen = [await codes(publisher, "a/x", "b"), await codes(other, "a/x")]
        await add(one, denial)
        seen += [await codes(publisher, "a/x", "b"), await codes(other, "a/x")]
        await delete(one, denial)
        seen.append(await codes(publisher, "a/x", "b"))
        assert seen == [[0, 0], [0], [NOT_AUTHORIZED, 0], [0], [0, 0]]


async def test_with_a_closed_default_rules_open_what_they_name(tmp_path: Path) -> None:
    opening = rule("of/%u/%c/#", allow=True, principal="ada")
    options: dict[str, Any] = {"mqtt": {"acl_default": "deny"}, "users": ("ada", "bob")}
    async with restartable_node(tmp_path, **options) as one:
        ada = await one.client("d1", username="ada", password=PASSWORD.encode())
        bob = await one.client("d2", username="bob", password=PASSWORD.encode())
        before = await codes(ada, "of/ada/d1/x"), await granted(ada, "of/ada/d1/#")
        await add(one, opening)
        after = await codes(ada, "of/ada/d1/x", "of/ada/d2/x", "of/bob/d1/x")
        filters = await granted(ada, "of/ada/d1/#", "of/ada/+/x", "#")
        others = await codes(bob, "of/bob/d2/x"), await granted(bob, "of/bob/d2/x")
        assert before == ([NOT_AUTHORIZED], [NOT_AUTHORIZED])
        assert after == [0, NOT_AUTHORIZED, NOT_AUTHORIZED]
        assert filters == [1, NOT_AUTHORIZED, NOT_AUTHORIZED]
        assert others == ([NOT_AUTHORIZED], [NOT_AUTHORIZED])


@pytest.mark.parametrize("version", [V3_1_1, V5])
@pytest.mark.parametrize("qos", [0, 1])
async def test_a_subscription_is_out_of_force_while_rules_deny_it(
    tmp_path: Path, version: int, qos: int
) -> None:
    denial = rule("a/secret", Operation.READ, client="r")
    async with restartable_node(tmp_path) as one:
        publisher, reader = await one.client("p"), await one.client("r", version=version)
        witness = await one.client("w")
        for client in (reader, witness):
            await client.subscribe(("a/#", qos), ("b", qos))

        async def say(number: bytes) -> None:
            for topic in ("a/secret", "b"):
                await publisher.publish(topic, [topic.encode() + number])

        await say(b"1")
        await add(one, denial)
        await say(b"2")
        await delete(one, denial)
        await say(b"3")

        came = payloads(await reader.take(5))
        assert came == [b"a/secret1", b"b1", b"b2", b"a/secret3", b"b3"]
        assert len(await witness.take(6)) == 6
        await reader.silent()


async def test_rules_of_topics_of_the_log_put_subscriptions_out_of_force_too(
    tmp_path: Path,
) -> None:
    everything = AuthRule(operation="all", resource="topic")
    denial = Rule(
        "*", Operation.READ, ResourceType.TOPIC, PatternKind.LITERAL, "mqtt", allow=False
    )
    async with restartable_node(tmp_path, rules=(everything,)) as one:
        publisher, reader = await one.client("p"), await one.client("r")
        await reader.subscribe(("a", 1))
        await add(one, denial)
        await publisher.publish("a", [b"unseen"])
        assert await granted(reader, "b") == [NOT_AUTHORIZED]
        await delete(one, denial)
        await publisher.publish("a", [b"seen"])
        assert payloads(await reader.take(1)) == [b"seen"]


async def test_a_session_that_comes_back_is_held_to_the_rules_of_that_moment(
    tmp_path: Path,
) -> None:
    denial = rule("a", Operation.READ)
    async with restartable_node(tmp_path) as one:
        publisher, reader = await one.client("p"), await one.client("r", kept=True)
        await reader.subscribe(("a", 1), ("b", 1))
        await reader.leave()
        await publisher.publish("a", [b"a1"])
        await publisher.publish("b", [b"b1"])
        await add(one, denial)

        reader = await one.client("r", kept=True)
        assert reader.session_present
        assert payloads(await reader.take(1)) == [b"b1"]
        await publisher.publish("a", [b"a2"])
        await delete(one, denial)
        await publisher.publish("a", [b"a3"])
        assert payloads(await reader.take(1)) == [b"a3"]
        await reader.silent()


async def test_a_restart_keeps_rules_and_what_they_have_put_out_of_force(
    tmp_path: Path,
) -> None:
    denial = rule("a", Operation.READ)
    async with restartable_node(tmp_path) as one:
        reader = await one.client("r", kept=True)
        await reader.subscribe(("a", 1), ("b", 1))
        await add(one, denial)
        await one.restart()
        publisher, reader = await one.client("p"), await one.client("r", kept=True)
        for topic in ("a", "b"):
            await publisher.publish(topic, [topic.encode()])
        assert payloads(await reader.take(1)) == [b"b"]
        await delete(one, denial)
        await publisher.publish("a", [b"again"])
        assert payloads(await reader.take(1)) == [b"again"]


async def test_a_subscription_out_of_force_can_be_given_up_and_made_again(
    tmp_path: Path,
) -> None:
    denial = rule("a", Operation.READ)
    async with restartable_node(tmp_path) as one:
        publisher, reader = await one.client("p"), await one.client("r", kept=True)
        await reader.subscribe(("a", 1))
        await add(one, denial)
        assert await granted(reader, "a") == [NOT_AUTHORIZED]
        session = one.session("r")
        assert session is not None
        assert (session.forbidden, list(session.subscriptions)) == (frozenset("a"), ["a"])
        await reader.unsubscribe("a")
        assert (session.forbidden, list(session.subscriptions)) == (frozenset(), [])
        await delete(one, denial)
        await publisher.publish("a", [b"for nobody"])
        assert await granted(reader, "a") == [1]
        await publisher.publish("a", [b"new"])
        assert payloads(await reader.take(1)) == [b"new"]


async def test_a_member_that_may_not_read_leaves_its_share_to_the_others(
    tmp_path: Path,
) -> None:
    denial = rule("job/#", Operation.READ, client="r1")
    async with restartable_node(tmp_path) as one:
        publisher = await one.client("p")
        readers = [await one.client(name, kept=True) for name in ("r1", "r2")]
        for reader in readers:
            await reader.subscribe(("$share/g/job/+", 1))
        await add(one, denial)
        assert await granted(readers[0], "$share/g/job/+") == [NOT_AUTHORIZED]
        await publisher.publish("job/1", [b"%d" % number for number in range(4)])
        assert payloads(await readers[1].take(4)) == [b"0", b"1", b"2", b"3"]
        await readers[0].silent()
        await readers[1].leave()
        await publisher.publish("job/1", [b"waits"])
        await readers[0].silent()
        await delete(one, denial)
        assert payloads(await readers[0].take(1)) == [b"waits"]


async def test_retained_messages_that_wait_are_not_sent_any_more(tmp_path: Path) -> None:
    denial = rule("a/#", Operation.READ, client="r")
    async with restartable_node(tmp_path) as one:
        publisher = await one.client("p")
        for number in range(3):
            await publisher.publish(f"a/{number}", [b"%d" % number], retain=True)
        await publisher.publish("b", [b"b"], retain=True)
        reader = await one.client("r", found=[(Prop.RECEIVE_MAXIMUM, 1)])
        await reader.subscribe(("a/#", 1), ("b", 1))
        first = await reader.message()
        await add(one, denial)
        await reader.acknowledge(first)
        assert payloads(await reader.take(1)) == [b"b"]
        await reader.silent()
        await delete(one, denial)
        await reader.subscribe(("a/#", 1))
        assert payloads(await reader.take(3)) == [b"0", b"1", b"2"]


async def test_who_was_away_when_rules_changed_gets_no_retained_message_that_waited(
    tmp_path: Path,
) -> None:
    denial = rule("a/#", Operation.READ, client="r")
    async with restartable_node(tmp_path) as one:
        publisher = await one.client("p")
        for number in range(3):
            await publisher.publish(f"a/{number}", [b"%d" % number], retain=True)
        reader = await one.client("r", kept=True, found=[(Prop.RECEIVE_MAXIMUM, 1)])
        await reader.subscribe(("a/#", 1))
        await reader.message()
        await reader.drop()
        await one.gone("r")
        await add(one, denial)
        reader = await one.client("r", kept=True)
        await reader.take(1)  # it was on its way already
        await reader.silent()
        session = one.session("r")
        assert session is not None
        assert not session.retained_scans
        await reader.silent()


@pytest.mark.parametrize("topics", [1, 3], ids=["a run", "mixed topics"])
async def test_who_is_being_served_of_the_log_gets_nothing_after_rules_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topics: int
) -> None:
    """The receivers of a run were found before the rules changed; then others were served."""
    names = [f"r{number}" for number in range(6)]
    async with restartable_node(tmp_path) as one:
        publisher = await one.client("p")
        for name in names:
            reader = await one.client(name, kept=True)
            await reader.subscribe(("t/#", 1))
            await reader.leave()
        for number in range(12):
            await publisher.publish(f"t/{number % topics}", [b"%d" % number])
        await one.restart()
        disk = SlowReads(one, monkeypatch)
        monkeypatch.setattr(one.adapter.node.feeds._pace, "_slice_s", 0.0)
        push = Outbox.push
        left: list[str] = []

        def noting(outbox: Outbox, *args: Any, **more: Any) -> Inflight:
            left.append("left")
            return push(outbox, *args, **more)

        monkeypatch.setattr(Outbox, "push", noting)
        for name in names:
            await one.client(name, kept=True)
        await disk.started.wait()
        disk.go.set()
        await until(lambda: bool(left))

        sessions = list(one.adapter.node.sessions)
        for session in sessions:
            assert session.connection is not None
            session.connection.access = cast(
                "Any", SimpleNamespace(may_subscribe=lambda _filter, **_how: False)
            )
        await one.adapter.node.read_access.rules_changed()
        left.append("denied")
        await until(lambda: not any(session.behind for session in sessions))
        assert left == ["left", "denied"]


async def leave_with_will(one: RestartableNode, *, delay_s: int = 0, **options: Any) -> None:
    will = WillMessage("will", b"gone", properties=[(Prop.WILL_DELAY, delay_s)])
    owner = await one.client("owner", kept=True, will=will, **options)
    await owner.drop()
    await one.gone("owner")


@pytest.mark.parametrize("delay_s", [0, WILL_DELAY_S])
async def test_a_will_is_published_as_the_rules_of_that_moment_say(
    tmp_path: Path, delay_s: int
) -> None:
    denial = rule("will", Operation.WRITE, client="owner")
    async with restartable_node(tmp_path) as one:
        watcher = await one.client("watcher")
        await watcher.subscribe(("#", 1))
        will = WillMessage("will", b"gone", properties=[(Prop.WILL_DELAY, delay_s)])
        for rules in ((denial,), ()):
            owner = await one.client("owner", kept=True, will=will)
            await add(one, *rules)
            await owner.drop()
            await one.gone("owner")
            one.clock.advance(WILL_DELAY_S * 1_000)
            one.adapter.node.wills.run_due()
            session = one.session("owner")
            assert session is not None
            await until(lambda found=session: found.will is None)  # type: ignore[misc]
            await watcher.publish("mark", [b"mark"], qos=0)
            await delete(one, *rules)
        assert payloads(await watcher.take(3)) == [b"mark", b"gone", b"mark"]
        assert one.adapter.node.counters.wills_published == 1


async def test_a_will_that_waited_over_a_restart_is_its_users(tmp_path: Path) -> None:
    opening = rule("will", Operation.WRITE, allow=True, principal="ada")
    rest = rule("#", Operation.ALL, allow=True, principal="bob")
    options: dict[str, Any] = {"mqtt": {"acl_default": "deny"}, "users": ("ada", "bob")}
    async with restartable_node(tmp_path, **options) as one:
        await add(one, opening, rest)
        password = PASSWORD.encode()
        await leave_with_will(one, delay_s=10, username="ada", password=password)
        await one.restart()
        watcher = await one.client("watcher", username="bob", password=password)
        await watcher.subscribe(("#", 1))
        one.clock.advance(10_000)
        one.adapter.node.wills.run_due()
        assert payloads(await watcher.take(1)) == [b"gone"]


async def test_a_message_that_waits_has_been_allowed_when_it_came(tmp_path: Path) -> None:
    denial = rule("later", Operation.WRITE, client="p")
    async with restartable_node(tmp_path) as one:
        publisher, reader = await one.client("p"), await one.client("r")
        await reader.subscribe(("later", 1))
        seen = await codes(publisher, "$delayed/5/later")
        await add(one, denial)
        seen += await codes(publisher, "$delayed/5/later", "later")
        assert seen == [0, NOT_AUTHORIZED, NOT_AUTHORIZED]
        await due(one, 5_000)
        assert payloads(await reader.take(1)) == [b"x"]
        await reader.silent()


async def test_a_lone_publisher_is_held_to_rules_that_come_meanwhile(tmp_path: Path) -> None:
    denial = rule("t", Operation.WRITE, client="p")
    async with restartable_node(tmp_path) as one:
        publisher = await one.client("p")
        seen = [*await codes(publisher, "t", "t", "t")]
        [connection] = one.adapter.listener.connections
        assert cast("Any", connection).publisher is not None
        await add(one, denial)
        seen += await codes(publisher, "t", "t")
        assert seen == [0, 0, 0, NOT_AUTHORIZED, NOT_AUTHORIZED]


async def test_many_sessions_are_looked_at_and_others_served_meanwhile(tmp_path: Path) -> None:
    denial = rule("a/#", Operation.READ)
    async with restartable_node(tmp_path) as one:
        publisher, other = await one.client("p"), await one.client("o")
        await other.subscribe(("b", 1))
        readers = [await one.client(f"r{number}") for number in range(5)]
        for reader in readers:
            await reader.subscribe(*((f"a/{number}", 1) for number in range(120)))
        await add(one, denial)
        assert [len(session.forbidden) for session in one.adapter.node.sessions] == [
            0, 0, *[120] * 5,
        ]  # fmt: skip
        await publisher.publish("a/1", [b"x"])
        await publisher.publish("b", [b"y"])
        assert payloads(await other.take(1)) == [b"y"]
        for reader in readers:
            await reader.silent()
