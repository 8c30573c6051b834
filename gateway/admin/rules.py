"""REST for rules: ``/v1/rules``. A rule has no name; its fields identify it.

``GET`` lists those of the store and of the config file (``source``), ``POST`` adds one, and
``DELETE`` removes the one that its query parameters say; they are the keys of ``RuleText``. What
MQTT clients do is called ``publish`` and ``subscribe``.
"""

from typing import Final, Literal

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gateway.admin.requests import NotFound, changes, read_body
from gateway.admin.state import AdminState
from gateway.auth.audit import rule_text
from gateway.auth.ports import EVERYBODY, ResourceType, Rule
from gateway.auth.rule_words import MQTT_WORDS, to_rule
from gateway.auth.rules import RuleBook
from gateway.config.auth import AuthOperation
from gateway.config.base import FrozenConfig
from gateway.errors import InvalidRequest, PolicyViolation

_MQTT_NAMES: Final = {operation: word for word, operation in MQTT_WORDS.items()}


class RuleNotFound(NotFound):
    """Unknown rule."""


class RuleText(FrozenConfig):
    """Rule with the keys of ``[[auth.rules]]``."""

    effect: Literal["allow", "deny"]
    operation: AuthOperation | Literal["publish", "subscribe"]
    resource: Literal["topic", "group", "cluster", "transactional_id", "mqtt_topic"]
    pattern: Literal["literal", "prefix", "any", "filter", "eq"]
    name: str = ""
    principal: str = EVERYBODY
    client: str = EVERYBODY
    protocol: str = EVERYBODY
    host: str = EVERYBODY


def routes(state: AdminState) -> list[Route]:
    """Return the routes below ``/v1/rules``."""

    async def list_rules(_: Request) -> Response:
        book = _book(state)
        found = [_shown(rule, "config") for rule in book.static_rules()]
        found += [_shown(rule, "store") for rule in book.stored_rules()]
        return JSONResponse({"rules": found})

    async def add(request: Request) -> Response:
        rule = to_rule(await read_body(request, RuleText))
        with changes(state.running(), request, "rule.add", rule_text(rule)):
            await _book(state).add_rules([rule])
        return JSONResponse(_shown(rule, "store"), 201)

    async def delete(request: Request) -> Response:
        book, rule = _book(state), to_rule(_asked(request))
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


def _shown(rule: Rule, source: str) -> dict[str, str]:
    is_mqtt = rule.resource_type is ResourceType.MQTT_TOPIC
    return {
        "effect": "allow" if rule.allow else "deny",
        "operation": (_MQTT_NAMES if is_mqtt else {}).get(rule.operation, rule.operation.value),
        "resource": rule.resource_type.value,
        "pattern": rule.pattern_kind.value,
        "name": rule.pattern,
        "principal": rule.principal,
        "client": rule.client,
        "protocol": rule.protocol,
        "host": rule.host,
        "source": source,
    }


def _book(state: AdminState) -> RuleBook:
    authorizer = state.running().authorizer
    if not isinstance(authorizer, RuleBook):
        msg = "this node's rules are kept elsewhere"
        raise InvalidRequest(msg)
    return authorizer
