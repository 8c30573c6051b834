"""Secret settings, and their masked form."""

import re
from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel, JsonValue

MASK: Final = "***"
SECRET: Final[dict[str, JsonValue]] = {"secret": True}
"""As ``json_schema_extra`` of a field: its value is never printed."""
SECRET_URL: Final[dict[str, JsonValue]] = {"secret_url": True}
"""The same for a URL, of which only the password is hidden."""

# Greedy up to the last @: a password may hold an @ or a slash that nobody has quoted.
_USER_INFO: Final = re.compile(r"(://[^/?#:@]*):.*@")
_IN_QUERY: Final = re.compile(
    r"([?&][^=&]*(?:password|secret|token)[^=&]*=)[^&]*", re.IGNORECASE
)


def mask_url(url: str) -> str:
    """Return a URL without its password.

    >>> mask_url("postgresql+psycopg://ada:se@cret@db/headgate?sslpassword=x")
    'postgresql+psycopg://ada:***@db/headgate?sslpassword=***'
    """
    return _IN_QUERY.sub(rf"\g<1>{MASK}", _USER_INFO.sub(rf"\g<1>:{MASK}@", url))


def masked(model: BaseModel, table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a section's table with secrets masked; ``table`` is the dump of ``model``."""
    shown = dict(table)
    for key in type(model).model_fields:
        if key not in shown or shown[key] is None:
            continue
        value = getattr(model, key)
        if isinstance(value, BaseModel):
            shown[key] = masked(value, shown[key])
        elif isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
            shown[key] = [masked(*pair) for pair in zip(value, shown[key], strict=True)]
        else:
            shown[key] = _shown(type(model), key, shown[key])
    return shown


def _shown(model: type[BaseModel], key: str, value: object) -> object:
    if is_secret(model, key, SECRET_URL):
        return mask_url(str(value))
    return MASK if is_secret(model, key) else value


def is_secret(model: type[BaseModel], key: str, kind: Mapping[str, JsonValue] = SECRET) -> bool:
    """Say whether a key of a section is marked as a secret."""
    field = model.model_fields.get(key)
    return field is not None and field.json_schema_extra == kind
