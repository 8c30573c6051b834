"""Queue policies: permissions of principals beside the queue's owner.

Supported: Allow and Deny; principals ``*``, accounts and users; actions and resources with
wildcards; conditions (``policy_conditions``). Elements that the gateway cannot enforce are refused
when a policy is set (``UnsupportedOperation``) rather than misread: variables, NotPrincipal,
NotAction, NotResource. Statements for services, roles and federated users are stored, but match
no caller of the gateway.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_grammar.html
"""

import json
import re
from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, Final, NamedTuple

from adapters.sqs.auth.policy_conditions import (
    ConditionTest,
    RequestContext,
    holds,
    parse_condition,
)
from adapters.sqs.auth.policy_elements import invalid, pattern, texts, unsupported
from adapters.sqs.call import Identity
from adapters.sqs.errors import OVER_LIMIT, SqsError
from adapters.sqs.text import is_account

STATEMENTS_MAX: Final = 20
PRINCIPALS_MAX: Final = 50  # of one statement
POLICY_BYTES_MAX: Final = 8_192
DOCUMENTS_CACHED_MAX: Final = 1_024  # parsed policies, of all queues

# Actions that a policy can allow to other accounts; the others are the owner's only.
SHARED_ACTIONS: Final = frozenset(
    {
        "ChangeMessageVisibility",
        "DeleteMessage",
        "GetQueueAttributes",
        "GetQueueUrl",
        "ListDeadLetterSourceQueues",
        "PurgeQueue",
        "ReceiveMessage",
        "SendMessage",
    }
)

_VERSIONS: Final = ("2008-10-17", "2012-10-17")
_EFFECTS: Final = ("Allow", "Deny")
_DOCUMENT_KEYS: Final = frozenset({"Version", "Id", "Statement"})
_STATEMENT_KEYS: Final = frozenset(
    {"Sid", "Effect", "Principal", "Action", "Resource", "Condition"}
)
_NOT_SUPPORTED: Final = ("NotPrincipal", "NotAction", "NotResource")
_PRINCIPAL_KINDS: Final = frozenset({"AWS", "Service", "Federated", "CanonicalUser"})
_IAM: Final = re.compile(r"arn:aws(?:-[a-z]+)*:(?:iam|sts)::([0-9]{12}):([^*]+)")


class Decision(Enum):
    """The result of a policy for a request; a Deny wins over every Allow."""

    ALLOW = "allow"
    DENY = "deny"
    SILENT = "silent"


class PolicyPrincipal(NamedTuple):
    """A principal of a statement: a user of an account or, with ``user`` empty, all users."""

    account: str
    user: str = ""


ANY_PRINCIPAL: Final = PolicyPrincipal("*")


class Statement(NamedTuple):
    """One statement. Without ``principals`` it matches no caller of the gateway."""

    allows: bool
    principals: frozenset[PolicyPrincipal]
    actions: re.Pattern[str]
    resources: re.Pattern[str]
    condition: tuple[ConditionTest, ...]


Policy = tuple[Statement, ...]


def decide(document: str, *, action: str, context: RequestContext, arn: str) -> bool | None:
    """Return True when a queue's policy allows a request, False for a Deny, None when silent."""
    decision = evaluate(_parsed(document), context, action, arn)
    return None if decision is Decision.SILENT else decision is Decision.ALLOW


def evaluate(policy: Policy, context: RequestContext, action: str, arn: str) -> Decision:
    """Return the policy's decision on an action (``SendMessage``) and the queue of an ARN.

    A permission for an action includes its batch version. An anonymous caller matches an Allow only
    if that is for everybody, and a Deny if that is for anybody of its account: leaving out the
    signature gains nothing.
    """
    identity = context.identity
    single = action.removesuffix("Batch")
    wanted = f"sqs:{single}"
    can_allow = single in SHARED_ACTIONS or identity.account == _account_of(arn)
    decision = Decision.SILENT
    for statement in policy:
        if (
            _applies_to(statement, identity)
            and statement.actions.fullmatch(wanted)
            and statement.resources.fullmatch(arn)
            and holds(statement.condition, context, allows=statement.allows)
        ):
            if not statement.allows:
                return Decision.DENY
            if can_allow:
                decision = Decision.ALLOW
    return decision


def _account_of(arn: str) -> str:
    return ":".join(arn.split(":")[4:5])


def _applies_to(statement: Statement, identity: Identity) -> bool:
    principals = statement.principals
    if ANY_PRINCIPAL in principals:
        return True
    account = identity.account
    if identity.principal.is_anonymous:
        return not statement.allows and any(
            principal.account == account for principal in principals
        )
    return (
        PolicyPrincipal(account) in principals
        or PolicyPrincipal(account, identity.principal.name) in principals
    )


def parse_policy(text: str) -> Policy:
    """Return the policy of a document.

    Errors: ``InvalidAttributeValue`` for a text that is no policy, ``OverLimit`` for too many
    statements, ``UnsupportedOperation`` for elements that cannot be enforced.
    """
    if len(text.encode()) > POLICY_BYTES_MAX:
        raise invalid(f"It has more than {POLICY_BYTES_MAX} bytes.")
    return tuple(_parse_statement(statement) for statement in parse_document(text)["Statement"])


@lru_cache(maxsize=DOCUMENTS_CACHED_MAX)
def _parsed(text: str) -> Policy:
    return parse_policy(text)


def parse_document(text: str) -> dict[str, Any]:
    """Return a policy's JSON, its statements as a list. Errors: as ``parse_policy``."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise invalid("It is not JSON.") from None
    if not isinstance(document, dict) or set(document) - _DOCUMENT_KEYS:
        raise invalid("It is not a map of Version, Id and Statement.")
    if document.get("Version", "2008-10-17") not in _VERSIONS:
        raise invalid("Version is not 2012-10-17 or 2008-10-17.")
    statements = document.get("Statement")
    if isinstance(statements, dict):
        statements = [statements]
    if not isinstance(statements, list) or not statements:
        raise invalid("It has no Statement.")
    if len(statements) > STATEMENTS_MAX:
        msg = (
            f"{len(statements)} statements were found in the submitted policy, "
            f"max allowed is {STATEMENTS_MAX}"
        )
        raise SqsError(OVER_LIMIT, msg)
    if not all(isinstance(statement, dict) for statement in statements):
        raise invalid("A statement is not a map.")
    return {**document, "Statement": statements}


def _parse_statement(statement: Mapping[str, Any]) -> Statement:
    for name in _NOT_SUPPORTED:
        if name in statement:
            raise unsupported(name)
    if set(statement) - _STATEMENT_KEYS:
        raise invalid("A statement has an element that there is none of.")
    if statement.get("Effect") not in _EFFECTS:
        raise invalid("Effect is not Allow or Deny.")
    if not isinstance(statement.get("Sid", ""), str):
        raise invalid("Sid is not a text.")
    principals = _parse_principal(statement.get("Principal"))
    # A statement for services alone matches no caller, so its condition need not be supported.
    condition = parse_condition(statement.get("Condition")) if principals else ()
    actions = texts(statement, "Action")
    if not all(action == "*" or action.lower().startswith("sqs:") for action in actions):
        raise invalid("An action is not one of SQS.")
    return Statement(
        statement["Effect"] == "Allow",
        principals,
        pattern(actions, re.IGNORECASE),
        pattern(texts(statement, "Resource")),
        condition,
    )


def _parse_principal(principal: object) -> frozenset[PolicyPrincipal]:
    if principal == "*":
        return frozenset({ANY_PRINCIPAL})
    if not isinstance(principal, dict) or not principal or set(principal) - _PRINCIPAL_KINDS:
        raise invalid("Principal is not * or a map of AWS, Service, Federated, CanonicalUser.")
    names = {kind: texts(principal, kind) for kind in principal}
    if sum(len(of_kind) for of_kind in names.values()) > PRINCIPALS_MAX:
        raise invalid(f"A statement has more than {PRINCIPALS_MAX} principals.")
    principals = (_parse_aws_principal(name) for name in names.get("AWS", ()))
    return frozenset(principal for principal in principals if principal is not None)


def _parse_aws_principal(name: str) -> PolicyPrincipal | None:
    """Return an AWS principal; None for a role or a session, which the gateway does not have."""
    if name == "*":
        return ANY_PRINCIPAL
    if is_account(name):
        return PolicyPrincipal(name)
    found = _IAM.fullmatch(name)
    if found is None:
        raise invalid("A principal is not *, an account or an ARN of IAM.")
    account, resource = found.groups()
    kind, _, path = resource.partition("/")
    if resource == "root":
        return PolicyPrincipal(account)
    # Users may have a path before their name, as in user/finance/alice.
    return (
        PolicyPrincipal(account, path.rpartition("/")[2]) if kind == "user" and path else None
    )
