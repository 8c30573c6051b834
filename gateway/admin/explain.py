"""REST for questions about rules: ``GET /v1/rules/explain`` says what decides, and why.

``?user=alice&operation=write&resource=topic&name=orders&protocol=kafka&host=192.0.2.7``
"""

from collections.abc import Iterator
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gateway.admin.rules import book_of
from gateway.admin.state import AdminState
from gateway.auth.ports import (
    ANONYMOUS,
    Operation,
    Principal,
    ResourceType,
    Rule,
    Verdict,
)
from gateway.auth.rule_view import rule_view
from gateway.auth.rules import RuleBook, is_about, selects
from gateway.errors import InvalidRequest

_REASONS: Final = {
    Verdict.DENIED: "a rule denies it",
    Verdict.ALLOWED: "a rule allows it",
    Verdict.CLOSED: "rules are about this resource, and none of them allows it",
}


def routes(state: AdminState) -> list[Route]:
    """Return the route."""

    async def explain(request: Request) -> Response:
        book, asked = book_of(state), request.query_params
        who = Principal(
            asked.get("user") or ANONYMOUS,
            asked.get("protocol") or "kafka",
            asked.get("host") or "127.0.0.1",
        )
        operation = _operation(asked.get("operation", ""))
        resource = book.types.find(asked.get("resource") or ResourceType.TOPIC.name)
        if resource is None or not resource.closes:
            raise InvalidRequest("resource: one whose rules the node itself decides")
        name = asked.get("name", "")
        allowed = book.allows(who, operation, resource, name)
        return JSONResponse(
            {
                "allowed": allowed,
                "reason": _reason(state, book, who, operation, resource, name),
                "rules": [rule_view(*one) for one in _about(book, who, resource, name)],
            }
        )

    return [Route("/rules/explain", explain, methods=["GET"])]


def _reason(  # noqa: PLR0917 - the parts of one question
    state: AdminState,
    book: RuleBook,
    who: Principal,
    operation: Operation,
    resource: ResourceType,
    name: str,
) -> str:
    users = state.running().authenticator
    if who.is_anonymous and users.required:
        return "login is required"
    if book.is_super_user(who):
        return "the user is an administrator"
    verdict = book.verdict(who, operation, resource, name)
    if verdict in _REASONS:
        return _REASONS[verdict]
    if resource.is_cluster and users.required:
        return "no rule is about it, and the cluster is the administrators'"
    if not users.required:
        return "no rule is about it, and nobody must log in"
    return "no rule is about it, and auth.default decides"


def _about(
    book: RuleBook, who: Principal, resource: ResourceType, name: str
) -> Iterator[tuple[Rule, str]]:
    """Yield the rules that are about the user and the resource, with where each is from."""
    for source, rules in (("config", book.static_rules()), ("store", book.stored_rules())):
        for rule in rules:
            if rule.resource_type == resource and is_about(rule, who) and selects(rule, name):
                yield rule, source


def _operation(word: str) -> Operation:
    try:
        return Operation(word)
    except ValueError as error:
        words = ", ".join(one.value for one in Operation)
        raise InvalidRequest(f"operation: one of {words}, not {word[:80]!r}") from error
