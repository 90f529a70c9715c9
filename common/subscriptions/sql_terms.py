"""Terms of the SQL92 filter, compiled to closures over the properties of a message.

Rules (RocketMQ 5.4 ``ComparisonExpression``, ``LogicExpression``, ``UnaryExpression``; behaviour.md B.6.2)
    1. What a term gives is known when it is compiled, but for null: a property is text, the rest is what it says.
       So the reading of values is chosen here, by the constant beside a property.
    2. Null is a third truth: an ordering with it is null, and so is ``null = x``; but ``x = null`` is false and
       ``null = null`` true, as upstream has it.
    3. AND and OR go from left to right and stop when they know; what they do not come to cannot raise.
    4. Two texts are ordered as doubles; text left of a truth is read as one, a truth left of text raises.

A term nests its parts at most ``MAX_DEPTH`` deep, so that no filter can exhaust the stack.

Texts are read as numbers as Java's ``Integer``, ``Long`` and ``Double`` read them (``ComparisonExpression.__compare``):
    5. A whole number has an optional sign and decimal digits, no blanks; it fits 32 bits, or 64 beside a long constant.
    6. A double may have blanks around it, an exponent, a suffix ``f`` or ``d``, or be ``NaN``, ``Infinity`` or hex.
    7. Doubles are ordered as ``Double.compareTo`` does: ``-0.0`` below ``0.0``, ``NaN`` above all and equal to itself.
       They are compared by their order key, a whole number, so that Python's operators do for everything.
"""

import operator
import re
import struct
from collections.abc import Callable, Collection, Mapping
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from .subscription import SqlSyntaxError

MAX_INT32: Final = 2**31 - 1
MAX_INT64: Final = 2**63 - 1
_MAX_DIGITS: Final = 19
_WHOLE: Final = re.compile("([+-]?)(\\d+)")
_DOUBLE: Final = re.compile(r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)")
_HEX_DOUBLE: Final = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?", re.ASCII
)
_BLANKS: Final = "".join(map(chr, range(33)))  # what String.trim removes
_BITS: Final = struct.Struct(">q")
_FLOAT: Final = struct.Struct(">d")


class SqlValueError(ValueError):
    """A value that the filter cannot read; the broker does not deliver the message (behaviour.md B.6.2)."""


def read_int32(text: str) -> int:
    """Return the number in a text as ``Integer.valueOf`` does.

    Raises:
        SqlValueError: it is no whole number, or needs more than 32 bits.
    """
    return _read_whole(text, MAX_INT32)


def read_int64(text: str) -> int:
    """Return the number in a text as ``Long.valueOf`` does.

    Raises:
        SqlValueError: it is no whole number, or needs more than 64 bits.
    """
    return _read_whole(text, MAX_INT64)


def read_double(text: str) -> int:
    """Return the order key of the number in a text as ``Double.valueOf`` reads it.

    Raises:
        SqlValueError: it is no number.
    """
    trimmed = text.strip(_BLANKS)
    if _DOUBLE.fullmatch(trimmed):
        return order_key(float(trimmed if trimmed[-1] in "yN" else trimmed.rstrip("fFdD")))
    hexadecimal = _HEX_DOUBLE.fullmatch(trimmed)
    if hexadecimal is None:
        raise SqlValueError(f"{text[:64]!r} is no number")
    return order_key(_read_hex(hexadecimal[1]))


def order_key(number: float) -> int:
    """Return a whole number that is ordered among its like as ``Double.compareTo`` orders doubles."""
    if number != number:
        return 0x7FF8_0000_0000_0000  # every NaN is the same one
    (bits,) = _BITS.unpack(_FLOAT.pack(number))
    return bits if bits >= 0 else bits ^ MAX_INT64


def _read_whole(text: str, most: int) -> int:
    match = _WHOLE.fullmatch(text)
    if match is None or max(text) > "\uffff":  # Java reads digits of any script, but not by surrogate pairs
        raise SqlValueError(f"{text[:64]!r} is no whole number")
    digits = match[2].lstrip("0")
    if len(digits) > _MAX_DIGITS:
        raise SqlValueError(f"{text[:64]!r} is beyond {most}")
    number = int(match[1] + (digits or "0"))
    if not -most - 1 <= number <= most:
        raise SqlValueError(f"{text[:64]!r} is beyond {most}")
    return number


def _read_hex(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return float("-inf" if text.startswith("-") else "inf")


MAX_DEPTH: Final = 100
Properties = Mapping[str, str]
Evaluate = Callable[[Properties], Any]


class Kind(Enum):
    """What a term gives unless it gives null."""

    PROPERTY = auto()
    TEXT = auto()
    INT32 = auto()
    INT64 = auto()
    DOUBLE = auto()
    TRUTH = auto()
    NOTHING = auto()


class Term(NamedTuple):
    """A compiled part of an expression."""

    kind: Kind
    evaluate: Evaluate
    is_constant: bool = False
    constant: Any = None
    depth: int = 1


_TEXTS: Final = frozenset([Kind.PROPERTY, Kind.TEXT])
_NUMBERS: Final = frozenset([Kind.INT32, Kind.INT64, Kind.DOUBLE])
_READERS: Final[Mapping[Kind, Callable[[str], int]]] = {
    Kind.INT32: read_int32,
    Kind.INT64: read_int64,
    Kind.DOUBLE: read_double,
}
ORDERS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
SEARCHES: Final[Mapping[str, Callable[[str, str], bool]]] = {
    "CONTAINS": operator.contains,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


def constant_term(kind: Kind, value: Any) -> Term:
    """Return a literal."""

    def give(_properties: Properties) -> Any:
        return value

    return Term(kind, give, is_constant=True, constant=value)


def property_term(name: str) -> Term:
    """Return the value of a property, null when the message has none."""

    def read(properties: Properties) -> str | None:
        return properties.get(name)

    return Term(Kind.PROPERTY, read)


def truth_of(term: Term) -> Term:
    """Return a term that stands where a truth is needed: a property there is false, whatever it holds.

    Raises:
        SqlSyntaxError: it is a number or a text.
    """
    if term.kind is Kind.TRUTH:
        return term
    if term.kind is not Kind.PROPERTY:
        raise SqlSyntaxError("a number or text stands where a condition is needed")
    evaluate = term.evaluate
    return _term(Kind.TRUTH, lambda properties: None if evaluate(properties) is None else False, term)


def negative_of(term: Term) -> Term:
    """Return the negative of a number; of whatever else, null."""
    evaluate = term.evaluate
    if term.kind in _NUMBERS:
        return _term(term.kind, lambda properties: -evaluate(properties), term)

    def give_nothing(properties: Properties) -> None:
        evaluate(properties)  # it may raise

    return _term(Kind.NOTHING, give_nothing, term)


def inverse_of(term: Term) -> Term:
    """Return NOT of a condition."""
    truth = truth_of(term)
    evaluate = truth.evaluate

    def invert(properties: Properties) -> bool | None:
        value = evaluate(properties)
        return None if value is None else not value

    return _term(Kind.TRUTH, invert, truth)


def all_of(terms: list[Term]) -> Term:
    """Return the conjunction of two or more conditions."""
    return _chain(terms, decisive=False)


def any_of(terms: list[Term]) -> Term:
    """Return the alternative of two or more conditions."""
    return _chain(terms, decisive=True)


def is_null(term: Term) -> Term:
    """Return whether a term gives null."""
    evaluate = term.evaluate
    return _term(Kind.TRUTH, lambda properties: evaluate(properties) is None, term)


def equality_of(left: Term, right: Term) -> Term:
    """Return ``left = right``.

    Raises:
        SqlSyntaxError: a side is the literal NULL, or a literal truth stands left of another literal.
    """
    if (left.is_constant and left.constant is None) or (right.is_constant and right.constant is None):
        raise SqlSyntaxError("NULL cannot be compared, there is IS NULL")
    if left.is_constant and right.is_constant and left.kind is Kind.TRUTH and right.kind is not Kind.TRUTH:
        raise SqlSyntaxError("TRUE and FALSE cannot be compared with a number or text")
    evaluate_left, evaluate_right, is_equal = left.evaluate, right.evaluate, _equality(left.kind, right.kind)

    def equals(properties: Properties) -> bool | None:
        one, other = evaluate_left(properties), evaluate_right(properties)
        if one is None:
            return True if other is None else None
        return other is not None and is_equal(one, other)

    return _term(Kind.TRUTH, equals, left, right)


def order_of(left: Term, mark: str, right: Term) -> Term:
    """Return ``left < right`` and its like.

    Raises:
        SqlSyntaxError: a side is a condition or a literal text.
    """
    for term in (left, right):
        if term.kind in (Kind.TRUTH, Kind.TEXT):
            raise SqlSyntaxError(f"only numbers and properties can be compared by {mark}")
    read_left, read_right = _readers(left.kind, right.kind)
    evaluate_left, evaluate_right, compare = left.evaluate, right.evaluate, ORDERS[mark]

    def is_ordered(properties: Properties) -> bool | None:
        one = evaluate_left(properties)
        if one is None:
            return None
        other = evaluate_right(properties)
        return None if other is None else compare(read_left(one), read_right(other))

    return _term(Kind.TRUTH, is_ordered, left, right)


def range_of(term: Term, low: Term, high: Term) -> Term:
    """Return ``term BETWEEN low AND high``.

    Raises:
        SqlSyntaxError: as by ``>=`` and ``<=``, or the literal bounds are the wrong way round.
    """
    inside = all_of([order_of(term, ">=", low), order_of(term, "<=", high)])
    if low.is_constant and high.is_constant and order_of(high, "<", low).evaluate({}):
        raise SqlSyntaxError(f"BETWEEN {low.constant} AND {high.constant}: the lower bound must come first")
    return inside


def membership_of(term: Term, texts: Collection[str]) -> Term:
    """Return ``term IN (texts)``.

    Raises:
        SqlSyntaxError: it is no property.
    """
    if term.kind is not Kind.PROPERTY:
        raise SqlSyntaxError("only a property can be IN a list")
    evaluate, members = term.evaluate, frozenset(texts)

    def is_member(properties: Properties) -> bool | None:
        value = evaluate(properties)
        return None if value is None else value in members

    return _term(Kind.TRUTH, is_member, term)


def search_of(term: Term, keyword: str, text: str, *, is_inverted: bool) -> Term:
    """Return ``term [NOT] CONTAINS text`` and its like: false for null, an empty text, or what is no text."""
    evaluate, search = term.evaluate, SEARCHES[keyword]

    def is_found(properties: Properties) -> bool:
        value = evaluate(properties)
        return isinstance(value, str) and search(value, text) is not is_inverted

    return _term(Kind.TRUTH, is_found if text else lambda _: False, term)


def _term(kind: Kind, evaluate: Evaluate, *parts: Term) -> Term:
    depth = 1 + max(part.depth for part in parts)
    if depth > MAX_DEPTH:
        raise SqlSyntaxError(f"the expression is nested more than {MAX_DEPTH} deep")
    return Term(kind, evaluate, depth=depth)


def _chain(terms: list[Term], *, decisive: bool) -> Term:
    truths = [truth_of(term) for term in terms]
    conditions = [truth.evaluate for truth in truths]

    def decide(properties: Properties) -> bool | None:
        value: bool | None = not decisive
        for condition in conditions:
            truth = condition(properties)
            if truth is decisive:
                return decisive
            if truth is None:
                value = None
        return value

    return _term(Kind.TRUTH, decide, *truths)


def _equality(left: Kind, right: Kind) -> Callable[[Any, Any], bool]:
    if left is Kind.TRUTH and right in _TEXTS:
        return _refuse_truth
    if left in _TEXTS and right is Kind.TRUTH:
        return lambda text, truth: (text.lower() == "true") is truth
    if (left is Kind.TRUTH) is not (right is Kind.TRUTH):
        return lambda _number, _truth: False
    if left in _NUMBERS or right in _NUMBERS:
        read_left, read_right = _readers(left, right)
        return lambda one, other: read_left(one) == read_right(other)
    return operator.eq


def _readers(left: Kind, right: Kind) -> tuple[Callable[[Any], int], Callable[[Any], int]]:
    """Return how each side becomes a whole number that can be compared with the other's."""
    if left in _TEXTS and right in _TEXTS:
        return read_double, read_double
    if left in _TEXTS:
        return _READERS.get(right, read_double), _number_reader(right, right)
    if right in _TEXTS:
        return _number_reader(left, left), _READERS.get(left, read_double)
    return _number_reader(left, right), _number_reader(right, left)


def _number_reader(kind: Kind, other: Kind) -> Callable[[Any], int]:
    return _double_key if Kind.DOUBLE in (kind, other) else int


def _double_key(number: float) -> int:
    return order_key(float(number))


def _refuse_truth(_truth: object, text: str) -> bool:
    raise SqlValueError(f"a truth cannot be compared with the text {text[:64]!r} on its right")
