"""Values of options and arguments without pydantic, which typer would import for them.

That import is three quarters of what a command about a running node costs. It is left to typer
where a type has more rules than are here, and with versions of typer that do not know
``_runtime_param``; tests/architecture/test_import_budget.py says when that has come.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args, get_origin

import typer

_SLOT: Final = "_runtime_param"
_Parse = Callable[[Any], Any]


class LightValue(NamedTuple):
    """Parser of one parameter, in the place of typer's own."""

    parse: _Parse
    is_list: bool

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:  # noqa: ANN401 - typer's words
        """Return what the command gets. Error: ``typer.BadParameter``."""
        if value is None:
            return () if self.is_list else None
        try:
            return [self.parse(one) for one in value] if self.is_list else self.parse(value)
        except typer.BadParameter as error:
            error.ctx, error.param = ctx, param
            raise


def lighten(command: Any) -> None:  # noqa: ANN401 - typer hides the class
    """Give the parameters of a command, and of those below it, parsers of this module."""
    for one in _commands(command):
        # The option --help is made at the first look, and kept.
        help_option = one.get_help_option(typer.Context(one))
        for param in (*one.params, *([help_option] if help_option else ())):
            descriptor = getattr(param, "type_descriptor", None)
            if descriptor is None or not hasattr(param, _SLOT):
                continue
            light = _light_value(descriptor.annotation, descriptor.parameter_info)
            if light is not None:
                setattr(param, _SLOT, light)


def _commands(command: Any) -> Iterator[Any]:  # noqa: ANN401
    waiting = [command]
    while waiting:
        one = waiting.pop()
        waiting += getattr(one, "commands", {}).values()
        yield one


def _light_value(annotation: Any, about: Any) -> LightValue | None:  # noqa: ANN401
    is_list = get_origin(annotation) is list
    kind = get_args(annotation)[0] if is_list else annotation
    parse = about.parser or _parser(kind, about)
    if parse is None or getattr(about, "click_type", None) is not None:
        return None
    return LightValue(parse, is_list)


def _parser(kind: object, about: Any) -> _Parse | None:  # noqa: ANN401
    if kind is str:
        return str
    if kind is bool:
        return _same
    if kind is int:
        return lambda value: _whole(value, about.min, about.max)
    if kind is Path and not (about.exists or about.readable is False or about.resolve_path):
        return Path
    return None


def _same(value: Any) -> Any:  # noqa: ANN401 - a flag's bool, as typer has made it
    return value


def _whole(value: object, least: float | None, most: float | None) -> int:
    try:
        number = int(str(value))
    except ValueError:
        raise typer.BadParameter(f"{value!r} is no whole number") from None
    if (least is not None and number < least) or (most is not None and number > most):
        rule = f"{least} or more" if most is None else f"{least or 0} to {most}"
        raise typer.BadParameter(f"{number} is not {rule}")
    return number
