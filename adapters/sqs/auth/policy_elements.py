"""What the elements of a policy are made of: texts, wildcards, and how they are refused. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from adapters.sqs.errors import INVALID_ATTRIBUTE_VALUE, UNSUPPORTED_OPERATION, SqsError


def texts(element: Mapping[str, Any], name: str) -> list[str]:
    """Return an element that is a text or a list of texts as a list."""
    value = element.get(name)
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not texts:
        raise invalid(f"{name} is missing or empty.")
    if not all(isinstance(text, str) and text for text in texts):
        raise invalid(f"{name} is not a text or a list of texts.")
    return texts


def pattern(texts: Sequence[str], flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[str]:
    """Return what matches any of some texts with the wildcards ``*`` and ``?``."""
    if any("${" in text for text in texts):
        raise unsupported("A variable")
    return re.compile("|".join(map(_glob, texts)), flags)


def _glob(text: str) -> str:
    """Return a text with wildcards as an expression whose matching takes linear time.

    What is between two stars is looked for where it comes first, and never again: the atomic
    groups keep many stars from trying all ways in which a name could be cut.
    """
    first, *rest = (re.escape(part).replace(r"\?", ".") for part in text.split("*"))
    if not rest:
        return first
    *between, last = rest
    return first + "".join(f"(?>.*?{part})" for part in between if part) + f".*{last}"


def invalid(reason: str) -> SqsError:
    """Say that a document is no policy, and why."""
    msg = f"Invalid value for the parameter Policy. Reason: {reason}"
    return SqsError(INVALID_ATTRIBUTE_VALUE, msg)


def unsupported(what: str) -> SqsError:
    """Say what of a policy could not be enforced here."""
    msg = f"{what} in a policy is not supported: it could not be enforced."
    return SqsError(UNSUPPORTED_OPERATION, msg)
