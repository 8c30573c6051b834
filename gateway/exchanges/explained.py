"""Explained routes as JSON, for the admin endpoint and for pages of adapters."""

import json
from collections.abc import Callable
from typing import Any

from features.routing.explaining import BindingReason, Explanation, RouteStep
from features.routing.model import Destination
from gateway.exchanges.standard import shown


def steps_view(
    found: Explanation, *, queue_word: str, name_of: Callable[[Destination], str]
) -> dict[str, Any]:
    """Return the steps of an explanation.

    ``queue_word``: the field's name for a destination that is no exchange; ``name_of``: its name.
    """
    return {
        "steps": [_step_view(one, queue_word, name_of) for one in found.steps],
        "steps_left_out": found.left_out,
        "delay_ms": found.route.delay_ms,
    }


def _step_view(
    step: RouteStep, queue_word: str, name_of: Callable[[Destination], str]
) -> dict[str, Any]:
    exchange = step.exchange
    return {
        "exchange": shown(step.name),
        "type": None if exchange is None else exchange.type.value,
        "from": None if step.source is None else shown(step.source),
        "is_alternate": step.is_alternate,
        "outcome": step.outcome,
        "bindings": [_reason_view(one, queue_word, name_of) for one in step.reasons],
        "bindings_left_out": step.left_out,
    }


def _reason_view(
    one: BindingReason, queue_word: str, name_of: Callable[[Destination], str]
) -> dict[str, Any]:
    destination = one.binding.destination
    kind = "exchange" if destination.is_exchange else queue_word
    return {
        kind: name_of(destination),
        "routing_key": one.binding.routing_key,
        "arguments": json.loads(one.binding.arguments_text),
        "matches": one.matches,
        "reason": one.reason,
    }
