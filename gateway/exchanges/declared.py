"""Exchanges and bindings declared in the config: a start makes the missing ones."""

from collections.abc import Sequence

from features.routing.model import (
    ALTERNATE_EXCHANGE,
    Binding,
    Destination,
    Exchange,
    Value,
    format_arguments,
    parse_arguments,
)
from features.routing.types import check_binding, check_exchange
from gateway.config.base import InvalidSettings
from gateway.config.exchanges import DeclaredBinding, DeclaredExchange
from gateway.config.names import DeclaredMode
from gateway.errors import GatewayError
from gateway.exchanges.manager import Exchanges
from gateway.exchanges.model import ExchangeName
from gateway.exchanges.rows import altered
from gateway.exchanges.standard import STANDARD
from gateway.model import DEFAULT_NAMESPACE


async def make_exchanges(
    exchanges: Exchanges,
    wanted: Sequence[DeclaredExchange],
    bindings: Sequence[DeclaredBinding],
    mode: DeclaredMode = "create",
) -> None:
    """Create the missing exchanges of the config, then the missing bindings.

    With ``enforce``, its own or the node's ``mode``, one that is there gets the alternate exchange
    of the config.

    What has been removed by a command is made again at the next start. Errors:
    ``InvalidSettings``, also for an exchange that is there and differs, and for a binding of which
    an end is missing; ``StorageUnavailable`` and others that may be gone at the next start.
    """
    for declared in wanted:
        name = ExchangeName(DEFAULT_NAMESPACE, declared.name)
        try:
            if (declared.declared or mode) == "enforce":
                await _enforce(exchanges, name, declared)
            await exchanges.declare(name, declared.type, arguments_of(declared))
        except GatewayError as error:
            raise _refused(f"exchanges.{declared.name}", error) from error
    for number, binding in enumerate(bindings):
        try:
            await exchanges.bind(DEFAULT_NAMESPACE, to_binding(binding))
        except GatewayError as error:
            raise _refused(f"bindings[{number}]", error) from error


async def _enforce(
    exchanges: Exchanges, name: ExchangeName, declared: DeclaredExchange
) -> None:
    """Change the alternate exchange of one of the same type; its flags stay."""
    row = exchanges.row(name)
    if row is None or row.type != declared.type:
        return
    before = parse_arguments(row.arguments).get(ALTERNATE_EXCHANGE, "")
    if before != declared.alternate:
        await exchanges.alter(
            altered(
                row,
                declared.alternate,
                auto_delete=row.auto_delete,
                is_internal=row.is_internal,
            )
        )


def check_declared(
    wanted: Sequence[DeclaredExchange], bindings: Sequence[DeclaredBinding]
) -> None:
    """Check what needs no node: types, arguments and keys. Error: ``InvalidSettings``."""
    found = {exchange.name: exchange for exchange in STANDARD}
    for declared in wanted:
        arguments = arguments_of(declared)
        try:
            kind = check_exchange(declared.type, arguments)
        except GatewayError as error:
            raise _refused(f"exchanges.{declared.name}", error) from error
        found[declared.name] = Exchange(declared.name, kind, arguments)
    for number, one in enumerate(bindings):
        exchange = found.get(one.source)
        if exchange is not None:  # others may have been made by a command
            try:
                check_binding(exchange, to_binding(one))
            except GatewayError as error:
                raise _refused(f"bindings[{number}]", error) from error


def arguments_of(declared: DeclaredExchange) -> dict[str, Value]:
    """Return the arguments of a declared exchange, with that of its alternate exchange."""
    found: dict[str, Value] = dict(declared.arguments)
    if declared.alternate:
        found[ALTERNATE_EXCHANGE] = declared.alternate
    return found


def to_binding(declared: DeclaredBinding) -> Binding:
    """Return a declared binding as routing knows it."""
    destination = Destination(
        declared.topic or declared.exchange, is_exchange=bool(declared.exchange)
    )
    arguments = format_arguments(declared.arguments)
    return Binding(declared.source, destination, declared.routing_key, arguments)


def _refused(what: str, error: GatewayError) -> GatewayError:
    return error if error.retriable else InvalidSettings(f"{what}: {error}")
