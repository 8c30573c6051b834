"""SQL92 expressions of RocketMQ, with the rules of its parser and its evaluation.

Properties are texts, and the other side of a comparison decides how a text is read: beside a
number it must be a number, or the message does not match; beside a boolean it is true when it is
the word ``true``. These rules differ from JMS and from SQL:

    NOT binds closer than a comparison: NOT a = 1 is (NOT a) = 1
    <, > and BETWEEN take no texts, IN and CONTAINS, STARTSWITH, ENDSWITH take nothing else
    a missing property equals another missing one
    a name alone is false, whatever its text, and unknown if it is missing
    CONTAINS and its kin are false for a missing property, with NOT too
    text behind a whole expression is ignored
"""

import re
from collections.abc import Callable
from enum import Enum
from functools import lru_cache
from typing import Final, NamedTuple

from features.selector import rocketmq_values as values
from features.selector.lexer import Kind, Lexer, Token, TokenStream
from features.selector.logic import all_of, any_of, constant, negation
from features.selector.model import (
    DEPTH_MAX,
    Evaluate,
    InvalidSelector,
    Scalar,
    Selector,
    check_size,
)

_CACHE_MAX: Final = 1_000
_TEXT_TESTS: Final = {
    "CONTAINS": str.__contains__,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}
_KEYWORDS: Final = (
    "AND", "BETWEEN", "FALSE", "IN", "IS", "NOT", "NULL", "OR", "TRUE", *_TEXT_TESTS,
)  # fmt: skip
_LEXER: Final = Lexer(
    re.compile(
        r"""
        (?P<skip> [ \t\n\r\f]+ | --[^\n\r]*[\n\r] | /\*(?:[^*]|\*+[^*/])*\*+/ )
        | (?P<float> [0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)? | \.[0-9]+(?:[eE][+-]?[0-9]+)?
            | [0-9]+[eE][+-]?[0-9]+ )
        | (?P<integer> 0 | [1-9][0-9]*[lL]? )
        | (?P<name> [a-zA-Z_$][a-zA-Z0-9_$]* )
        | (?P<string> '(?:[^']|'')*' )
        | (?P<symbol> <> | <= | >= | [=<>+\-(),] )
        """,
        re.VERBOSE,
    ),
    _KEYWORDS,
)


class _Sort(Enum):
    """Sort of an expression, on which its use depends."""

    CONSTANT = "constant"
    PROPERTY = "property"
    CONDITION = "condition"
    NEGATIVE = "negative"


class _Expression(NamedTuple):
    """Expression that was read; ``value`` is that of a constant."""

    sort: _Sort
    token: Token
    evaluate: Evaluate
    value: Scalar = None
    name: str | None = None

    @property
    def is_condition(self) -> bool:
        """Whether it is a condition, as TRUE, FALSE and NULL are, too."""
        if self.sort is _Sort.CONSTANT:
            return self.value is None or isinstance(self.value, bool)
        return self.sort is _Sort.CONDITION


@lru_cache(maxsize=_CACHE_MAX)
def compile_rocketmq(text: str) -> Selector:
    """Return the compiled expression. Error: ``InvalidSelector``, with the position.

    >>> compile_rocketmq("TAGS is not null and a between 0 and 3").matches({"TAGS": "x", "a": "2"})
    True
    """
    check_size(text)
    return _ExpressionParser(text).parse()


class _ExpressionParser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = TokenStream(_LEXER, text)
        self._names: set[str] = set()
        self._depth = 0

    def parse(self) -> Selector:
        condition = _condition(self._or())
        self._tokens.peek()  # What follows is ignored, but it must begin with a token.
        return Selector(self._text, frozenset(self._names), condition)

    def _or(self) -> _Expression:
        return self._joined(self._and, "OR", any_of)

    def _and(self) -> _Expression:
        return self._joined(self._equality, "AND", all_of)

    def _joined(
        self,
        operand: Callable[[], _Expression],
        word: str,
        join: Callable[[list[Evaluate]], Evaluate],
    ) -> _Expression:
        first, parts = self._tokens.joined(word, operand, _condition)
        return _Expression(_Sort.CONDITION, first.token, join(parts)) if parts else first

    def _equality(self) -> _Expression:
        left = self._comparison()
        while operator := self._tokens.take_if("=", "<>", "IS"):
            if operator.is_("IS"):
                negated = self._tokens.take_if("NOT") is not None
                self._tokens.expect("NULL")
                evaluate = values.equal(left.evaluate, constant(None))
            else:
                right = self._comparison()
                negated = operator.is_("<>")
                evaluate = self._equal(left, right)
            evaluate = negation(evaluate) if negated else evaluate
            left = _Expression(_Sort.CONDITION, left.token, evaluate)
        return left

    def _equal(self, left: _Expression, right: _Expression) -> Evaluate:
        both = (left, right)
        for one in both:
            if one.sort is _Sort.CONSTANT and one.value is None:
                raise InvalidSelector("NULL cannot be compared", one.token.position)
        are_constant = all(one.sort is _Sort.CONSTANT for one in both)
        if are_constant and left.is_condition and not right.is_condition:
            raise InvalidSelector(
                f"{left.token.shown} cannot be compared with {right.token.shown}",
                right.token.position,
            )
        return values.equal(left.evaluate, right.evaluate)

    def _comparison(self) -> _Expression:
        left = self._unary()
        while True:
            if operator := self._tokens.take_if("<", "<=", ">", ">="):
                evaluate = _ordered(operator.text, left, self._unary())
            elif self._tokens.peek().is_("BETWEEN", "IN", *_TEXT_TESTS):
                evaluate = self._predicate(left, negated=False)
            elif self._tokens.take_if("NOT"):
                evaluate = self._predicate(left, negated=True)
            else:
                return left
            left = _Expression(_Sort.CONDITION, left.token, evaluate)

    def _predicate(self, left: _Expression, *, negated: bool) -> Evaluate:
        word = self._tokens.take()
        if word.is_("BETWEEN"):
            return self._between(left, negated=negated)
        if word.is_("IN"):
            return self._in(left, negated=negated)
        if word.is_(*_TEXT_TESTS):
            searched = self._tokens.expect_string().text
            test = _TEXT_TESTS[word.text]
            return values.of_text(
                left.evaluate, lambda text: test(text, searched) ^ negated, searched
            )
        raise InvalidSelector(
            f"{word.shown} where BETWEEN, IN or {', '.join(_TEXT_TESTS)} is expected",
            word.position,
        )

    def _between(self, left: _Expression, *, negated: bool) -> Evaluate:
        low = self._unary()
        self._tokens.expect("AND")
        high = self._unary()
        if negated:
            return any_of([_ordered("<", left, low), _ordered(">", left, high)])
        ends = [_ordered(">=", left, low), _ordered("<=", left, high)]
        if low.sort is high.sort is _Sort.CONSTANT and values.order(high.value, low.value) < 0:
            raise InvalidSelector(
                f"BETWEEN {low.token.shown} AND {high.token.shown} is empty", low.token.position
            )
        return all_of(ends)

    def _in(self, left: _Expression, *, negated: bool) -> Evaluate:
        self._tokens.expect("(")
        found = {self._tokens.expect_string().text}
        while self._tokens.take_if(","):
            found.add(self._tokens.expect_string().text)
        self._tokens.expect(")")
        if left.sort is not _Sort.PROPERTY:
            raise InvalidSelector(
                f"{left.token.shown} is not the name of a property, and IN takes one",
                left.token.position,
            )
        return values.is_in(left.evaluate, frozenset(found), negated=negated)

    def _unary(self) -> _Expression:
        token = self._tokens.take_if("+", "-", "NOT")
        if token is None:
            return self._primary()
        self._enter(token)
        operand = self._unary()
        self._depth -= 1
        if token.text == "+":
            return operand
        if token.text == "-":
            return _Expression(_Sort.NEGATIVE, token, values.negative(operand.evaluate))
        return _Expression(_Sort.CONDITION, token, negation(_condition(operand)))

    def _primary(self) -> _Expression:
        token = self._tokens.take()
        if token.kind is Kind.NAME:
            self._names.add(token.text)
            evaluate = values.of_property(token.text)
            return _Expression(_Sort.PROPERTY, token, evaluate, name=token.text)
        if token.is_("("):
            self._enter(token)
            inner = self._or()
            self._tokens.expect(")")
            self._depth -= 1
            return inner
        value = _literal(token)
        return _Expression(_Sort.CONSTANT, token, constant(value), value)

    def _enter(self, token: Token) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise InvalidSelector(f"more than {DEPTH_MAX} levels", token.position)


def _condition(expression: _Expression) -> Evaluate:
    """Return an expression as a condition. Error: ``InvalidSelector`` when it cannot be one."""
    if expression.is_condition:
        return expression.evaluate
    if expression.sort is _Sort.PROPERTY:
        return values.as_condition(expression.evaluate)
    raise InvalidSelector(
        f"{expression.token.shown} is not a condition", expression.token.position
    )


def _ordered(operator: str, left: _Expression, right: _Expression) -> Evaluate:
    for one in (left, right):
        is_text = one.sort is _Sort.CONSTANT and not values.is_number(one.value)
        if one.is_condition or is_text:
            raise InvalidSelector(f"{one.token.shown} has no order", one.token.position)
    return values.ordered(values.ORDERS[operator], left.evaluate, right.evaluate)


def _literal(token: Token) -> Scalar:
    match token.kind:
        case Kind.STRING:
            return token.text
        case Kind.INTEGER:
            return values.parse_literal(token)
        case Kind.FLOAT:
            value = float(token.text)
            if not values.DOUBLE_MIN <= value <= values.DOUBLE_MAX:
                raise InvalidSelector(f"{token.shown} is out of range", token.position)
            return value
        case _:
            if not token.is_("TRUE", "FALSE", "NULL"):
                raise InvalidSelector(
                    f"{token.shown} where a value is expected", token.position
                )
            return None if token.text == "NULL" else token.text == "TRUE"
