"""Access to a queue: a Deny of rule or policy, then an Allow of either, then the default."""

import json
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, cast

import pytest
from botocore.exceptions import ClientError

from gateway.auth.ports import Operation, PatternKind, ResourceType, Rule
from gateway.auth.rules import RuleBook
from gateway.auth.users import StoredUsers
from tests.adapters.sqs.handlers.serving import Live, running

OTHER_ACCOUNT: Final = "111111111111"


class Case(NamedTuple):
    """A rule, a policy and the caller's account, with the defaults under which it may send."""

    rule: str
    policy: str
    account: str
    allowed_with: str


CASES: Final = [
    Case("", "", "own", "allow"),
    Case("", "", "another", "neither"),
    Case("allow by name", "", "own", "both"),
    Case("allow by name", "", "another", "both"),
    Case("allow any", "", "own", "both"),
    Case("allow any", "", "another", "neither"),
    Case("allow another", "", "own", "neither"),
    Case("allow another", "Allow", "own", "both"),
    Case("", "Allow", "own", "both"),
    Case("", "Allow", "another", "both"),
    Case("", "Deny", "own", "neither"),
    Case("allow by name", "Deny", "own", "neither"),
    Case("deny", "Allow", "own", "neither"),
    Case("deny", "Allow", "another", "neither"),
]


def rules_of(text: str, name: str) -> list[Rule]:
    """Return the rules that a case speaks of."""
    if not text:
        return []
    kind = PatternKind.ANY if text == "allow any" else PatternKind.LITERAL
    user = "carol" if text == "allow another" else "bob"
    pattern = "" if kind is PatternKind.ANY else name
    allow = text != "deny"
    return [Rule(user, Operation.ALL, ResourceType.TOPIC, kind, pattern, allow=allow)]


def policy_of(live: Live, effect: str, name: str) -> str:
    """Return a policy that allows or denies everybody to send."""
    if not effect:
        return ""
    statement = {
        "Effect": effect,
        "Principal": {"AWS": "*"},
        "Action": "sqs:SendMessage",
        "Resource": live.arn(name),
    }
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


async def may_send(by: Any, live: Live, url: str) -> bool:
    try:
        await live.call("send_message", by=by, QueueUrl=url, MessageBody="x")
    except ClientError as error:
        if error.response["Error"]["Code"] != "AccessDenied":
            raise
        return False
    return True


@pytest.mark.parametrize("default", ["allow", "deny"])
async def test_denials_win_then_allowances_then_the_default(
    tmp_path: Path, default: Literal["allow", "deny"]
) -> None:
    sqs = {"accounts": [OTHER_ACCOUNT]}
    async with running(tmp_path, sqs=sqs, users={"root": "x"}, default=default) as live:
        book = cast("RuleBook", live.kernel.authorizer)
        users = cast("StoredUsers", live.kernel.authenticator)
        await users.add_user("root", "x", administers=True)
        root = await live.user("root")
        callers = {
            "own": await live.user("bob"),
            "another": await live.user("bob", OTHER_ACCOUNT),
        }
        wrong = []
        for number, case in enumerate(CASES):
            name = f"q{number}"
            url = await live.queue(name, by=root, Policy=policy_of(live, case.policy, name))
            rules = rules_of(case.rule, name)
            await book.add_rules(rules)
            found = await may_send(callers[case.account], live, url)
            if found is not (case.allowed_with in {"both", default}):
                wrong.append(case)
            assert await may_send(root, live, url), case
            await book.delete_rules(rules)
        assert wrong == []


async def test_a_policy_for_everybody_admits_nobody_unsigned_where_login_is_required(
    tmp_path: Path,
) -> None:
    sqs = {"anonymous": "always"}
    async with running(tmp_path, sqs=sqs, users={"root": "x"}) as live:
        by = await live.user("root")
        url = await live.queue("q", by=by, Policy=policy_of(live, "Allow", "q"))
        refused = await live.refused("send_message", QueueUrl=url, MessageBody="x")
        assert refused.code == "InvalidClientTokenId"


async def test_dead_letters_go_only_where_who_sets_it_may_send(tmp_path: Path) -> None:
    async with running(tmp_path, users={"root": "x"}, default="deny") as live:
        book = cast("RuleBook", live.kernel.authorizer)
        users = cast("StoredUsers", live.kernel.authenticator)
        await users.add_user("root", "x", administers=True)
        root, bob = await live.user("root"), await live.user("bob")
        await live.queue("payments", by=root)
        await book.add_rules(rules_of("allow by name", "mine"))
        policy = json.dumps({"deadLetterTargetArn": live.arn("payments"), "maxReceiveCount": 1})
        unknown = policy.replace("payments", "nowhere")

        for redrive in (policy, unknown):
            with pytest.raises(ClientError, match="AccessDenied"):
                await live.queue("mine", by=bob, RedrivePolicy=redrive)
        url = await live.queue("mine", by=bob)
        with pytest.raises(ClientError, match="AccessDenied"):
            await set_redrive(live, bob, url, policy)

        await set_redrive(live, root, url, policy)  # where it is set, it may stay
        await set_redrive(live, bob, url, policy.replace("1}", "5}"))
        assert await live.queue("mine", by=bob, RedrivePolicy=policy.replace("1}", "5}")) == url
        await set_redrive(live, bob, url, "")
        rule = rules_of("allow by name", "payments")[0]
        await book.add_rules([rule._replace(operation=Operation.WRITE)])
        await set_redrive(live, bob, url, policy)


async def set_redrive(live: Live, by: Any, url: str, policy: str) -> None:
    await live.call(
        "set_queue_attributes", by=by, QueueUrl=url, Attributes={"RedrivePolicy": policy}
    )
