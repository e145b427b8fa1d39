"""From text to tree: RocketMQ's grammar, minus what is refused although the grammar has it.

Precedence from low to high: OR; AND; `=`, `<>`, IS; comparisons; NOT, plus and minus. So `NOT a =
1` asks whether `NOT a` equals 1, as in RocketMQ. Limits: TERMS_MAX, NAMES_MAX and DEPTH_MAX keep an
evaluation short and a tree shallow, whatever the text.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from aerobee.domain.sql_filter.errors import SqlIllegal
from aerobee.domain.sql_filter.numbers import compare_numbers
from aerobee.domain.sql_filter.tokens import INTEGER_MAX, Kind, Token, tokens
from aerobee.domain.sql_filter.tree import (
    All,
    Any,
    Condition,
    Constant,
    Equal,
    Has,
    In,
    IsNull,
    IsSet,
    Negated,
    Not,
    Order,
    Ordered,
    Part,
    Property,
    Value,
)

LENGTH_MAX: Final = 16_384
"""Characters."""
DEPTH_MAX: Final = 50
"""Nesting of parentheses, NOT and signs; also operators after the first that follow a value."""
TERMS_MAX: Final = 1_024
"""Values and comparisons; an IN list counts as one."""
NAMES_MAX: Final = 64
"""Properties that one expression names."""

_ORDERS: Final = frozenset(Order)
_PARTS: Final = frozenset(Part)


def parse(text: str) -> Condition:
    """Raises SqlIllegal."""
    if len(text) > LENGTH_MAX:
        raise SqlIllegal(
            text, LENGTH_MAX, f"it has {len(text)} characters, at most {LENGTH_MAX} are allowed"
        )
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens(text)
        self._token = next(self._tokens)
        self._ahead: Token | None = None
        self._depth = 0
        self._chained = 0
        self._terms = 0
        self._names: set[str] = set()

    def whole(self) -> Condition:
        begin = self._token
        if begin.kind is Kind.END:
            raise self._wrong("it is empty; write a condition such as a > 5")
        found = self._condition(self._any(), begin)
        after = self._token
        if after.kind is not Kind.END:
            raise self._wrong(_why_trailing(after))
        return found

    # ------------------------------------------------------------------------------ levels

    def _any(self) -> Value:
        return self._joined("OR", self._all, Any)

    def _all(self) -> Value:
        return self._joined("AND", self._equality, All)

    def _joined(
        self,
        word: str,
        operand: Callable[[], Value],
        node: Callable[[tuple[Condition, ...]], Condition],
    ) -> Value:
        begin = self._token
        first = operand()
        if not self._is_word(word):
            return first
        operands = [self._condition(first, begin)]
        while self._is_word(word):
            self._next()
            begin = self._token
            operands.append(self._condition(operand(), begin))
        return node(tuple(operands))

    def _equality(self) -> Value:
        left = self._comparison()
        chain = 0
        while True:
            sign = self._token
            if self._is_sign("=") or self._is_sign("<>"):
                self._next()
                equal = self._equal(left, self._comparison(), sign)
                left = equal if sign.text == "=" else Not(equal)
            elif self._is_word("IS"):
                self._next()
                is_not = self._take_word("NOT")
                if not self._take_word("NULL"):
                    raise self._wrong("after IS comes NULL or NOT NULL")
                left = Not(IsNull(left)) if is_not else IsNull(left)
            else:
                return left
            chain = self._chain(chain, sign)

    def _comparison(self) -> Value:
        left = self._unary()
        chain = 0
        while True:
            sign = self._token
            if sign.kind is Kind.OPERATOR and sign.text in _ORDERS:
                self._next()
                left = self._ordered(Order(sign.text), left, self._unary(), sign)
            elif sign.kind is Kind.KEYWORD and (is_not := self._negates()) is not None:
                if is_not:
                    self._next()
                left = self._worded(left, is_negated=is_not, sign=sign)
            else:
                return left
            chain = self._chain(chain, sign)

    def _worded(self, left: Value, *, is_negated: bool, sign: Token) -> Condition:
        """After the value: BETWEEN, IN, or a text search."""
        word = self._token.text
        self._next()
        if word == "BETWEEN":
            return self._between(left, is_negated=is_negated, sign=sign)
        if word == "IN":
            return self._in(left, is_negated=is_negated, sign=sign)
        return Has(Part(word), left, self._string(word), is_negated)

    def _between(self, left: Value, *, is_negated: bool, sign: Token) -> Condition:
        low = self._unary()
        if not self._take_word("AND"):
            raise self._wrong("after BETWEEN and its lower end comes AND")
        high = self._unary()
        if is_negated:
            below = self._ordered(Order.BELOW, left, low, sign)
            return Any((below, self._ordered(Order.ABOVE, left, high, sign)))
        both = (
            self._ordered(Order.FROM, left, low, sign),
            self._ordered(Order.UP_TO, left, high, sign),
        )
        lowest, highest = _number(low), _number(high)
        if lowest is not None and highest is not None and compare_numbers(lowest, highest) > 0:
            raise self._wrong("the lower end of BETWEEN is above the upper one", sign)
        return All(both)

    def _in(self, left: Value, *, is_negated: bool, sign: Token) -> Condition:
        if not isinstance(left, Property):
            raise self._wrong("before IN comes a property's name", sign)
        self._take_sign("(", "after IN comes a list, such as ('x', 'y')")
        texts = [self._string("IN and its parenthesis")]
        while self._is_sign(","):
            self._next()
            texts.append(self._string("a comma"))
        self._take_sign(")", "a list of IN has strings between commas and ends with )")
        return In(left.name, tuple(texts), is_negated)

    def _unary(self) -> Value:
        sign = self._token
        if self._is_sign("+"):
            self._next()
            return self._inside(self._unary, sign)
        if self._is_sign("-"):
            self._next()
            return Negated(self._inside(self._unary, sign))
        if self._is_word("NOT"):
            self._next()
            return Not(self._condition(self._inside(self._unary, sign), self._token))
        return self._primary()

    def _primary(self) -> Value:
        token = self._token
        if self._is_sign("("):
            self._next()
            found = self._inside(self._any, token)
            self._take_sign(")", "a parenthesis is open: expected an operator or )")
            return found
        self._count_term(token)
        self._next()
        if token.kind is Kind.NAME:
            self._names.add(token.text)
            if len(self._names) > NAMES_MAX:
                raise self._wrong(f"at most {NAMES_MAX} properties can be named", token)
            return Property(token.text)
        if token.kind is Kind.STRING:
            return Constant(token.text)
        if token.kind is Kind.INTEGER:
            return Constant(self._integer(token))
        if token.kind is Kind.FLOAT:
            return Constant(self._float(token))
        if token.kind is Kind.KEYWORD and token.text in _WORDS:
            return Constant(_WORDS[token.text])
        if token.kind is Kind.KEYWORD:
            raise self._wrong(f"{token.text} is a keyword; expected a value", token)
        raise self._wrong("expected a property's name, a literal or a parenthesis", token)

    # ------------------------------------------------------------------------------ checks

    def _condition(self, value: Value, begin: Token) -> Condition:
        """Requires a condition here."""
        if isinstance(value, Property):
            return IsSet(value.name)
        if isinstance(value, Negated) or (
            isinstance(value, Constant)
            and not (value.value is None or isinstance(value.value, bool))
        ):
            raise self._wrong("this is no condition; compare it with something", begin)
        return value

    def _equal(self, left: Value, right: Value, sign: Token) -> Equal:
        self._count_term(sign)
        for operand in (left, right):
            if operand == Constant(None):
                raise self._wrong("nothing equals NULL; write IS NULL or IS NOT NULL", sign)
        if (
            isinstance(left, Constant)
            and isinstance(left.value, bool)
            and isinstance(right, Constant)
            and not isinstance(right.value, bool)
        ):
            raise self._wrong("a truth value cannot be compared with this literal", sign)
        return Equal(left, right)

    def _ordered(self, order: Order, left: Value, right: Value, sign: Token) -> Ordered:
        self._count_term(sign)
        for operand in (left, right):
            if not (isinstance(operand, Property | Negated) or _number(operand) is not None):
                raise self._wrong(
                    f"{sign.text} compares properties and numbers, not strings or truth values",
                    sign,
                )
        return Ordered(order, left, right)

    def _integer(self, token: Token) -> int:
        if len(token.text) > len(str(INTEGER_MAX)) or (value := int(token.text)) > INTEGER_MAX:
            raise self._wrong(f"an integer is at most {INTEGER_MAX}", token)
        return value

    def _float(self, token: Token) -> float:
        value = float(token.text)
        if math.isinf(value):
            raise self._wrong("the number is too large for a double", token)
        return value

    def _inside(self, inner: Callable[[], Value], sign: Token) -> Value:
        self._depth += 1
        self._check_depth(sign)
        found = inner()
        self._depth -= 1
        return found

    def _chain(self, chain: int, sign: Token) -> int:
        """A further operator after a comparison makes the tree deeper."""
        if chain:
            self._chained += 1
            self._check_depth(sign)
        return chain + 1

    def _check_depth(self, sign: Token) -> None:
        if max(self._depth, self._chained) > DEPTH_MAX:
            raise self._wrong(f"it is nested more than {DEPTH_MAX} times; make it flatter", sign)

    def _count_term(self, token: Token) -> None:
        self._terms += 1
        if self._terms > TERMS_MAX:
            raise self._wrong(
                f"at most {TERMS_MAX} values and comparisons are allowed; lists of IN count once",
                token,
            )

    # ------------------------------------------------------------------------------ tokens

    def _next(self) -> None:
        if self._ahead is not None:
            self._token, self._ahead = self._ahead, None
        elif self._token.kind is not Kind.END:
            self._token = next(self._tokens)

    def _negates(self) -> bool | None:
        """Whether NOT precedes the next keyword; None: no comparison follows."""
        token = self._token
        if token.text == "NOT":
            if self._ahead is None:
                self._ahead = next(self._tokens)
            token = self._ahead
        is_comparison = token.kind is Kind.KEYWORD and (
            token.text in ("BETWEEN", "IN") or token.text in _PARTS
        )
        return token is not self._token if is_comparison else None

    def _is_sign(self, text: str) -> bool:
        return self._token.kind is Kind.OPERATOR and self._token.text == text

    def _is_word(self, text: str) -> bool:
        return self._token.kind is Kind.KEYWORD and self._token.text == text

    def _take_word(self, text: str) -> bool:
        is_there = self._is_word(text)
        if is_there:
            self._next()
        return is_there

    def _take_sign(self, text: str, advice: str) -> None:
        if not self._is_sign(text):
            raise self._wrong(advice)
        self._next()

    def _string(self, after: str) -> str:
        token = self._token
        if token.kind is not Kind.STRING:
            raise self._wrong(f"after {after} comes a string in single quotes")
        self._next()
        return token.text

    def _wrong(self, reason: str, token: Token | None = None) -> SqlIllegal:
        return SqlIllegal(self._text, (token or self._token).position, reason)


_WORDS: Final = {"TRUE": True, "FALSE": False, "NULL": None}


def _number(value: Value) -> int | float | None:
    """The value of a numeric literal."""
    if not isinstance(value, Constant) or isinstance(value.value, bool | str | None):
        return None
    return value.value


def _why_trailing(token: Token) -> str:
    if token.kind is Kind.NAME and token.text.upper() == "LIKE":
        return "there is no LIKE; use CONTAINS, STARTSWITH or ENDSWITH"
    if token.kind is Kind.OPERATOR and token.text in ("+", "-"):
        return "there is no arithmetic"
    return "the expression is complete before it; join conditions by AND or OR"
