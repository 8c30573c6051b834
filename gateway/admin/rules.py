"""REST for rules: ``/v1/rules``. A rule has no name; its fields identify it.

``GET`` lists those of the store and of the config file (``source``), ``POST`` adds one, and
``DELETE`` removes the one that its query parameters say; they are the keys of ``RuleText``. Without
a pattern, the type of resource has one: ``literal``, or ``any`` without a name, where it can.
Resources, patterns and operations are checked against those of the node's adapters.
"""

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gateway.admin.requests import NotFound, changes, read_body
from gateway.admin.state import AdminState
from gateway.auth.audit import rule_text
from gateway.auth.ports import Rule
from gateway.auth.rule_view import RuleText, rule_view
from gateway.auth.rule_words import to_rule
from gateway.auth.rules import RuleBook
from gateway.errors import InvalidRequest, PolicyViolation


class RuleNotFound(NotFound):
    """Unknown rule."""


def routes(state: AdminState) -> list[Route]:
    """Return the routes below ``/v1/rules``."""

    async def list_rules(_: Request) -> Response:
        book = book_of(state)
        found = [rule_view(rule, "config") for rule in book.static_rules()]
        found += [rule_view(rule, "store") for rule in book.stored_rules()]
        return JSONResponse({"rules": found})

    async def add(request: Request) -> Response:
        rule = to_rule(await read_body(request, RuleText), book_of(state).types)
        with changes(state.running(), request, "rule.add", rule_text(rule)):
            await book_of(state).add_rules([rule])
        return JSONResponse(rule_view(rule, "store"), 201)

    async def delete(request: Request) -> Response:
        book, words = book_of(state), _asked(request)
        rule = _of_adapter_off(book, words) or to_rule(words, book.types)
        if rule in book.stored_rules():
            with changes(state.running(), request, "rule.remove", rule_text(rule)):
                await book.delete_rules([rule])
            return Response(status_code=204)
        if rule in book.static_rules():
            msg = "the rule is set in the config file"
            raise PolicyViolation(msg)
        raise RuleNotFound("no such rule")

    return [
        Route("/rules", list_rules, methods=["GET"]),
        Route("/rules", add, methods=["POST"]),
        Route("/rules", delete, methods=["DELETE"]),
    ]


def _asked(request: Request) -> RuleText:
    try:
        return RuleText.model_validate(dict(request.query_params))
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        raise InvalidRequest(f"{detail['loc'][0]}: {detail['msg']}") from error


def _of_adapter_off(book: RuleBook, words: RuleText) -> Rule | None:
    """Return the stored rule of a type that nothing of this node knows, if it is meant."""
    wanted = words.model_dump()
    for rule in book.stored_rules():
        shown = rule_view(rule, "store")
        if not rule.resource_type.patterns and all(
            shown[key] == value
            for key, value in wanted.items()
            if (key, value) != ("pattern", "")
        ):
            return rule
    return None


def book_of(state: AdminState) -> RuleBook:
    """Return the node's rules. Error: ``InvalidRequest`` where they are kept elsewhere."""
    authorizer = state.running().authorizer
    if not isinstance(authorizer, RuleBook):
        msg = "this node's rules are kept elsewhere"
        raise InvalidRequest(msg)
    return authorizer
