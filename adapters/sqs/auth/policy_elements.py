"""Elements of a policy: texts, patterns with wildcards, and errors. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from adapters.sqs.errors import INVALID_ATTRIBUTE_VALUE, UNSUPPORTED_OPERATION, SqsError


def texts(element: Mapping[str, Any], name: str) -> list[str]:
    """Return an element, a text or a list of texts, as a list."""
    value = element.get(name)
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not texts:
        raise invalid(f"{name} is missing or empty.")
    if not all(isinstance(text, str) and text for text in texts):
        raise invalid(f"{name} is not a text or a list of texts.")
    return texts


def pattern(texts: Sequence[str], flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[str]:
    """Return a pattern that matches any of the texts with the wildcards ``*`` and ``?``."""
    if any("${" in text for text in texts):
        raise unsupported("A variable")
    return re.compile("|".join(map(_glob, texts)), flags)


def _glob(text: str) -> str:
    """Return a text with wildcards as a regular expression that matches in linear time.

    A part between two stars is matched at its first occurrence only: atomic groups keep the
    expression from backtracking over all ways to split a name.
    """
    first, *rest = (re.escape(part).replace(r"\?", ".") for part in text.split("*"))
    if not rest:
        return first
    *between, last = rest
    return first + "".join(f"(?>.*?{part})" for part in between if part) + f".*{last}"


def invalid(reason: str) -> SqsError:
    """Return the error for a document that is no policy, with the reason."""
    msg = f"Invalid value for the parameter Policy. Reason: {reason}"
    return SqsError(INVALID_ATTRIBUTE_VALUE, msg)


def unsupported(what: str) -> SqsError:
    """Return the error for an element that cannot be enforced."""
    msg = f"{what} in a policy is not supported: it could not be enforced."
    return SqsError(UNSUPPORTED_OPERATION, msg)
