"""Tokens of selectors, in the two dialects."""

import re
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final, NamedTuple, TypeVar

from features.selector.model import InvalidSelector

_Operand = TypeVar("_Operand")
_Condition = TypeVar("_Condition")

_SHOWN_MAX: Final = 20


class Kind(Enum):
    """Kind of a token."""

    NAME = "name"
    KEYWORD = "keyword"
    STRING = "string"
    INTEGER = "integer"
    FLOAT = "float"
    SYMBOL = "symbol"
    END = "end"


class Token(NamedTuple):
    """Token: its text, keywords in capitals, and its index in characters."""

    kind: Kind
    text: str
    position: int

    def is_(self, *words: str) -> bool:
        """Say whether it is one of these keywords or symbols."""
        return self.kind in {Kind.KEYWORD, Kind.SYMBOL} and self.text in words

    @property
    def shown(self) -> str:
        """Text for an error message."""
        if self.kind is Kind.END:
            return "the end"
        text = self.text
        return repr(text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "...")


class Lexer:
    """Reads the tokens of one dialect, one at a time.

    ``pattern`` has a group for each kind by its name, and a group ``skip``. A group's match must
    be the longest token.
    """

    def __init__(self, pattern: "re.Pattern[str]", keywords: Iterable[str]) -> None:
        self._pattern = pattern
        self._keywords = frozenset(keywords)

    def next(self, text: str, position: int) -> tuple[Token, int]:
        """Return the token at an index or behind, and the index behind it.

        Error: ``InvalidSelector`` for a character that begins no token.
        """
        while position < len(text):
            found = self._pattern.match(text, position)
            if found is None:
                character = text[position]
                what = "a string without end" if character == "'" else f"{character!r}"
                raise InvalidSelector(f"{what} is not understood", position)
            if found.lastgroup != "skip":
                return self._token(found), found.end()
            position = found.end()
        return Token(Kind.END, "", len(text)), len(text)

    def _token(self, found: "re.Match[str]") -> Token:
        kind, text = Kind(found.lastgroup), found.group()
        if kind is Kind.NAME and text.upper() in self._keywords:
            return Token(Kind.KEYWORD, text.upper(), found.start())
        if kind is Kind.STRING:
            text = text[1:-1].replace("''", "'")
        return Token(kind, text, found.start())


class TokenStream:
    """The tokens of one text, with one or two tokens of lookahead."""

    def __init__(self, lexer: Lexer, text: str) -> None:
        self._lexer = lexer
        self._text = text
        self._end = 0
        self._waiting: list[Token] = []

    def peek(self, ahead: int = 0) -> Token:
        """Return a token that was not taken yet."""
        while len(self._waiting) <= ahead:
            token, self._end = self._lexer.next(self._text, self._end)
            self._waiting.append(token)
        return self._waiting[ahead]

    def take(self) -> Token:
        """Take the next token."""
        token = self.peek()
        del self._waiting[0]
        return token

    def take_if(self, *words: str) -> Token | None:
        """Take the next token if it is one of these keywords or symbols."""
        return self.take() if self.peek().is_(*words) else None

    def joined(
        self,
        word: str,
        operand: Callable[[], _Operand],
        condition: Callable[[_Operand], _Condition],
    ) -> tuple[_Operand, list[_Condition]]:
        """Parse operands with ``word`` between them.

        Return the first, and the conditions of all; no conditions where ``word`` does not follow.
        """
        first = operand()
        if not self.peek().is_(word):
            return first, []
        conditions = [condition(first)]
        while self.take_if(word):
            conditions.append(condition(operand()))
        return first, conditions

    def expect(self, word: str) -> Token:
        """Take a keyword or symbol. Error: ``InvalidSelector`` where another token stands."""
        token = self.peek()
        if not token.is_(word):
            raise InvalidSelector(f"{token.shown} where {word} is expected", token.position)
        return self.take()

    def expect_string(self) -> Token:
        """Take a string literal. Error: ``InvalidSelector`` where another token stands."""
        token = self.peek()
        if token.kind is not Kind.STRING:
            raise InvalidSelector(
                f"{token.shown} where a string in quotes is expected", token.position
            )
        return self.take()
