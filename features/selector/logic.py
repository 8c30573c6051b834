"""Three-valued logic of SQL: true, false, and None for unknown."""

from collections.abc import Sequence

from features.selector.model import Evaluate, Properties, Scalar


def all_of(parts: Sequence[Evaluate]) -> Evaluate:
    """Return AND: false where one part is false, else unknown where one is unknown."""
    return _joined(parts, decisive=False)


def any_of(parts: Sequence[Evaluate]) -> Evaluate:
    """Return OR: true where one part is true, else unknown where one is unknown."""
    return _joined(parts, decisive=True)


def _joined(parts: Sequence[Evaluate], *, decisive: bool) -> Evaluate:
    """Return a join that is ``decisive`` as soon as one part is."""

    def evaluate(properties: Properties) -> Scalar:
        found: Scalar = not decisive
        for part in parts:
            value = part(properties)
            if value is decisive:
                return decisive
            if value is None:
                found = None
        return found

    return evaluate


def negation(part: Evaluate) -> Evaluate:
    """Return NOT: unknown where the part is unknown."""

    def evaluate(properties: Properties) -> Scalar:
        value = part(properties)
        return None if value is None else not value

    return evaluate


def constant(value: Scalar) -> Evaluate:
    """Return a literal."""
    return lambda _properties: value


def of_property(name: str) -> Evaluate:
    """Return a property's value, None where the message has none."""
    return lambda properties: properties.get(name)
