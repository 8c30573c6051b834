"""Selectors of JMS (Jakarta Messaging 3.1, section 3.8): a subset of SQL-92's conditions.

Values are compared with values of their own kind only: numbers with numbers, texts with texts,
booleans with booleans; a comparison across kinds is false. A property that is not there makes a
condition unknown, and unknown is not true. Texts and booleans have no order. Arithmetic with
something else than a number is unknown, and so is a division of integers by zero; integers have
64 bits and wrap around, as in Java. Names may contain dots.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple, NoReturn

from features.selector import jms_values as values
from features.selector.lexer import Kind, Lexer, Token, TokenStream
from features.selector.like import compile_like
from features.selector.logic import all_of, any_of, constant, negation, of_property
from features.selector.model import (
    DEPTH_MAX,
    Evaluate,
    InvalidSelector,
    Selector,
    check_size,
)

_CACHE_MAX: Final = 1_000
_KEYWORDS: Final = (
    "AND", "BETWEEN", "ESCAPE", "FALSE", "IN", "IS", "LIKE", "NOT", "NULL", "OR", "TRUE",
)  # fmt: skip
_LEXER: Final = Lexer(
    re.compile(
        r"""
        (?P<skip> \s+ | --[^\r\n]* | /\*.*?\*/ )
        | (?P<float>
            (?: \d+\.\d*(?:[eE][+-]?\d+)? | \.\d+(?:[eE][+-]?\d+)? | \d+[eE][+-]?\d+ ) [fFdD]?
            | \d+[fFdD]
          )
        | (?P<integer> (?: 0[xX][0-9a-fA-F]+ | \d+ ) [lL]? )
        | (?P<name> [^\W\d][\w$.]* | \$[\w$.]* )
        | (?P<string> '(?:[^']|'')*' )
        | (?P<symbol> <> | <= | >= | [=<>+\-*/(),] )
        """,
        re.VERBOSE | re.DOTALL,
    ),
    _KEYWORDS,
)


class _Type(NamedTuple):
    """Kinds of value that an expression may have."""

    number: bool = False
    text: bool = False
    condition: bool = False


_NUMBER: Final = _Type(number=True)
_TEXT: Final = _Type(text=True)
_CONDITION: Final = _Type(condition=True)
_ANY: Final = _Type(number=True, text=True, condition=True)


class _Part(NamedTuple):
    """Expression that was read: what it may be, its first token, its function."""

    type: _Type
    token: Token
    evaluate: Evaluate
    name: str | None = None  # of a property that stands alone


@lru_cache(maxsize=_CACHE_MAX)
def compile_jms(text: str) -> Selector:
    """Return the compiled selector. Error: ``InvalidSelector``, with the position.

    >>> compile_jms("JMSPriority > 3 AND color IN ('red', 'blue')").matches(
    ...     {"JMSPriority": 4, "color": "red"}
    ... )
    True
    """
    check_size(text)
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = TokenStream(_LEXER, text)
        self._names: set[str] = set()
        self._depth = 0

    def parse(self) -> Selector:
        condition = self._condition(self._or())
        token = self._tokens.peek()
        if token.kind is not Kind.END:
            raise InvalidSelector(f"{token.shown} where the end is expected", token.position)
        return Selector(self._text, frozenset(self._names), condition)

    # --- conditions

    def _or(self) -> _Part:
        return self._joined(self._and, "OR", any_of)

    def _and(self) -> _Part:
        return self._joined(self._not, "AND", all_of)

    def _joined(
        self,
        operand: Callable[[], _Part],
        word: str,
        join: Callable[[list[Evaluate]], Evaluate],
    ) -> _Part:
        first, parts = self._tokens.joined(word, operand, self._condition)
        return _Part(_CONDITION, first.token, join(parts)) if parts else first

    def _not(self) -> _Part:
        token = self._tokens.peek()
        count = 0
        while self._tokens.take_if("NOT"):
            count += 1
        part = self._comparison()
        if not count:
            return part
        condition = self._condition(part)
        return _Part(_CONDITION, token, negation(condition) if count % 2 else condition)

    def _condition(self, part: _Part) -> Evaluate:
        """Return a part as a condition. Error: ``InvalidSelector`` when it cannot be one."""
        if not part.type.condition:
            _refuse(part, "is not a condition")
        return part.evaluate if part.name is None else values.as_condition(part.evaluate)

    # --- comparisons

    def _comparison(self) -> _Part:
        left = self._sum()
        while True:
            token = self._tokens.peek()
            if token.is_("=", "<>", "<", "<=", ">", ">="):
                left = self._compared(left, self._tokens.take())
            elif token.is_("IS"):
                left = self._is_null(left)
            elif token.is_("BETWEEN", "IN", "LIKE"):
                left = self._predicate(left)
            elif token.is_("NOT"):
                self._tokens.take()
                left = self._predicate(left, negated=True)
            else:
                return left

    def _compared(self, left: _Part, operator: Token) -> _Part:
        right = self._sum()
        if operator.is_("=", "<>"):
            if not any(one and other for one, other in zip(left.type, right.type, strict=True)):
                _refuse(right, "cannot be compared with what is left of it")
            compare: values.Compare = values.EQUALITY[operator.text]
        else:
            for part in (left, right):
                if not part.type.number:
                    _refuse(part, "has no order: it can be compared by = and <> only")
            compare = values.ORDERS[operator.text]
        return _Part(
            _CONDITION, left.token, values.compared(compare, left.evaluate, right.evaluate)
        )

    def _is_null(self, left: _Part) -> _Part:
        self._tokens.expect("IS")
        negated = self._tokens.take_if("NOT") is not None
        self._tokens.expect("NULL")
        evaluate = values.is_null(of_property(self._named(left, "IS NULL")))
        return _Part(_CONDITION, left.token, negation(evaluate) if negated else evaluate)

    def _predicate(self, left: _Part, *, negated: bool = False) -> _Part:
        token = self._tokens.take()
        if token.is_("BETWEEN"):
            return self._between(left, negated=negated)
        if token.is_("IN"):
            evaluate = self._in(self._named(left, "IN"))
        elif token.is_("LIKE"):
            evaluate = self._like(self._named(left, "LIKE"))
        else:
            raise InvalidSelector(
                f"{token.shown} where BETWEEN, IN or LIKE is expected", token.position
            )
        return _Part(_CONDITION, left.token, negation(evaluate) if negated else evaluate)

    def _between(self, left: _Part, *, negated: bool) -> _Part:
        low = self._sum()
        self._tokens.expect("AND")
        high = self._sum()
        for part in (left, low, high):
            if not part.type.number:
                _refuse(part, "is no number, and BETWEEN compares numbers")
        first, second, join = ("<", ">", any_of) if negated else (">=", "<=", all_of)
        ends = [
            values.compared(values.ORDERS[first], left.evaluate, low.evaluate),
            values.compared(values.ORDERS[second], left.evaluate, high.evaluate),
        ]
        return _Part(_CONDITION, left.token, join(ends))

    def _in(self, name: str) -> Evaluate:
        self._tokens.expect("(")
        found = {self._tokens.expect_string().text}
        while self._tokens.take_if(","):
            found.add(self._tokens.expect_string().text)
        self._tokens.expect(")")
        return values.of_text(of_property(name), frozenset(found).__contains__)

    def _like(self, name: str) -> Evaluate:
        pattern = self._tokens.expect_string().text
        escape = ""
        if self._tokens.take_if("ESCAPE"):
            token = self._tokens.expect_string()
            if len(token.text) != 1:
                raise InvalidSelector("ESCAPE takes one character", token.position)
            escape = token.text
        return values.of_text(of_property(name), compile_like(pattern, escape))

    def _named(self, part: _Part, word: str) -> str:
        if part.name is None:
            _refuse(part, f"is not the name of a property, and {word} takes one")
        return part.name

    # --- arithmetic

    def _sum(self) -> _Part:
        return self._chain(self._product, ("+", "-"))

    def _product(self) -> _Part:
        return self._chain(self._signed, ("*", "/"))

    def _chain(self, operand: Callable[[], _Part], operators: tuple[str, ...]) -> _Part:
        first = operand()
        if not self._tokens.peek().is_(*operators):
            return first
        steps = []
        head = self._number(first)
        while token := self._tokens.take_if(*operators):
            steps.append((values.OPERATIONS[token.text], self._number(operand())))
        return _Part(_NUMBER, first.token, values.arithmetic(head, steps))

    def _signed(self) -> _Part:
        token = self._tokens.take_if("+", "-")
        if token is None:
            return self._primary()
        if token.text == "-" and (literal := self._tokens.peek()).kind is Kind.INTEGER:
            self._tokens.take()
            value = _integer(literal, negative=True)
            return _Part(_NUMBER, token, constant(value))
        self._enter(token)
        operand = self._number(self._signed())
        self._depth -= 1
        evaluate = values.negative(operand) if token.text == "-" else values.positive(operand)
        return _Part(_NUMBER, token, evaluate)

    def _number(self, part: _Part) -> Evaluate:
        if not part.type.number:
            _refuse(part, "is no number")
        return part.evaluate

    def _primary(self) -> _Part:
        token = self._tokens.take()
        if token.kind is Kind.STRING:
            return _Part(_TEXT, token, constant(token.text))
        if token.kind is Kind.INTEGER:
            return _Part(_NUMBER, token, constant(_integer(token)))
        if token.kind is Kind.FLOAT:
            return _Part(_NUMBER, token, constant(float(token.text.rstrip("fFdD"))))
        if token.kind is Kind.NAME:
            self._names.add(token.text)
            return _Part(_ANY, token, of_property(token.text), token.text)
        if token.is_("TRUE", "FALSE"):
            return _Part(_CONDITION, token, constant(token.text == "TRUE"))
        if not token.is_("("):
            raise InvalidSelector(f"{token.shown} where a value is expected", token.position)
        self._enter(token)
        inner = self._or()
        self._tokens.expect(")")
        self._depth -= 1
        return inner

    def _enter(self, token: Token) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise InvalidSelector(f"more than {DEPTH_MAX} levels", token.position)


def _integer(token: Token, *, negative: bool = False) -> int:
    text = token.text.rstrip("lL")
    base = (
        16 if text[:2] in {"0x", "0X"} else 8 if text.startswith("0") and len(text) > 1 else 10
    )
    try:
        value = int(text, base)
    except ValueError:
        raise InvalidSelector(f"{token.shown} is no number", token.position) from None
    value = -value if negative else value
    if values.wrapped(value) != value:
        raise InvalidSelector(f"{token.shown} is no integer of 64 bits", token.position)
    return value


def _refuse(part: _Part, why: str) -> NoReturn:
    raise InvalidSelector(f"{part.token.shown} {why}", part.token.position)
