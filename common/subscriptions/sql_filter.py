"""The SQL92 filter: a condition on the properties of a message.

    price > 20 AND (TAGS IN ('a', 'b') OR region IS NULL)

    or          and { OR and }
    and         equality { AND equality }
    equality    comparison { = comparison | <> comparison | IS [NOT] NULL }
    comparison  unary { < unary | <= unary | > unary | >= unary | [NOT] BETWEEN unary AND unary
                | [NOT] IN ( STRING {, STRING } ) | [NOT] CONTAINS | STARTSWITH | ENDSWITH STRING }
    unary       { + | - | NOT } primary
    primary     STRING | NUMBER | DECIMAL | TRUE | FALSE | NULL | NAME | ( or )

Rules (RocketMQ 5.4 ``SelectorParser``; behaviour.md B.6.2)
    1. The longest beginning of the text that is an expression is the filter. The word behind it must be one, and what
       follows that is not even looked at: ``a > 3 LIKE 'x'`` is ``a > 3``, and ``a + 1 > 2`` is ``a``.
    2. A property alone is false, or null when it is missing.
    3. Longer than ``MAX_CHARACTERS``, of more than ``MAX_TERMS`` values and properties, or deeper than ``MAX_DEPTH``
       an expression is refused. A term takes about 900 bytes once it is compiled.

Pure: nothing is kept between two filters; who compiles often caches, by ``SqlFilter.terms``.

The words of an expression are read one at a time (RocketMQ 5.4 ``SelectorParser.jj``): the longest word wins; blanks
and ``/* */`` are skipped, and ``--`` up to an end of line that is there; whatever else is an error, but only once the
parser has come to it. Behind the last end of line ``--`` is two marks, so that nothing is looked for there: each
character is passed a fixed number of times.

    word      text
    NUMBER    0, or digits that do not begin with 0, with an optional L
    DECIMAL   with a point, an exponent or both: 5. .5 5e3
    STRING    '...' with '' for a quote
    NAME      letters, digits, _ and $, not beginning with a digit; ASCII only
    a keyword in capitals, or = <> < <= > >= ( ) , + -
    END       the end of the text
"""

import re
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from ..properties import codecs, find_value, parse_properties
from ..record import find_values, read_property_text
from .sql_terms import (
    MAX_DEPTH,
    MAX_INT32,
    MAX_INT64,
    ORDERS,
    SEARCHES,
    Evaluate,
    Kind,
    SqlValueError,
    Term,
    all_of,
    any_of,
    constant_term,
    equality_of,
    inverse_of,
    is_null,
    membership_of,
    negative_of,
    order_of,
    property_term,
    range_of,
    search_of,
    truth_of,
)
from .subscription import SqlLimitError, SqlSyntaxError

NUMBER, DECIMAL, STRING, NAME, END = "number", "decimal", "string", "name", "end of the text"
KEYWORDS: Final = frozenset(
    ["NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH"]
)
_COMMENT: Final = r"/\*[^*]*+\*(?:\*|[^*/][^*]*+\*)*+/"
_SKIPPED: Final = re.compile(rf"(?:[ \t\n\r\f]++|--[^\n\r]*+(?:\r\n|\n|\r)|{_COMMENT})*+")
_SKIPPED_IN_LAST_LINE: Final = re.compile(rf"(?:[ \t\n\r\f]++|{_COMMENT})*+")
_WORD: Final = re.compile(
    r"""(?P<decimal>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
    |(?P<number>0|[1-9][0-9]*[lL]?)
    |(?P<string>'(?:''|[^'])*')
    |(?P<name>[a-zA-Z_$][a-zA-Z0-9_$]*)
    |(?P<mark><>|<=|>=|[=<>(),+-])""",
    re.VERBOSE,
)


class Word(NamedTuple):
    """A word, what it is, and where it stands."""

    kind: str
    text: str
    position: int


class Words:
    """The words of an expression, read as they are asked for."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._position = 0
        self._last_line_at = 1 + max(expression.rfind("\n"), expression.rfind("\r"))
        self._ahead: list[Word] = []

    def peek(self, distance: int = 0) -> str:
        """Return what the next word is, or the one behind it.

        Raises:
            SqlSyntaxError: there is something that is no word.
        """
        while len(self._ahead) <= distance:
            self._ahead.append(self._read())
        return self._ahead[distance].kind

    def take(self, kind: str | None = None) -> Word:
        """Return the next word and go past it.

        Raises:
            SqlSyntaxError: it is not of the kind that was asked for.
        """
        self.peek()
        word = self._ahead.pop(0)
        if kind is not None and word.kind != kind:
            raise SqlSyntaxError(f"expected {kind} at {word.position}, there is {word.text or END}")
        return word

    def _read(self) -> Word:
        pattern = _SKIPPED if self._position < self._last_line_at else _SKIPPED_IN_LAST_LINE
        skipped = pattern.match(self._expression, self._position)
        start = skipped.end() if skipped else self._position
        if start == len(self._expression):
            return Word(END, "", start)
        match = _WORD.match(self._expression, start)
        if match is None:
            raise SqlSyntaxError(f"no word begins with {self._expression[start]!r} at {start}")
        self._position = match.end()
        return Word(_kind(match), match[0], start)


def _kind(match: re.Match[str]) -> str:
    if match.lastgroup == "mark":
        return match[0]
    keyword = match[0].upper()
    return keyword if match.lastgroup == "name" and keyword in KEYWORDS else str(match.lastgroup)


__all__ = [
    "MAX_CHARACTERS",
    "MAX_TERMS",
    "SqlFilter",
    "SqlLimitError",
    "SqlSyntaxError",
    "SqlValueError",
    "compile_sql",
]

MAX_CHARACTERS: Final = 32_768
MAX_TERMS: Final = 4_096
_MOST_NAMES: Final = 8
"""That are looked for one by one; of more it takes less to parse all properties once."""
_MOST_NEW: Final = 4
_MOST_SEEN: Final = 128
_MOST_VALUE_BYTES: Final = 128
"""Of the values together that are remembered: with both limits 40 KB for an expression."""


_ENTRY: Final = struct.Struct(">qi")  # of a queue entry, where its record is
_ENTRY_BYTES: Final = 20


class SqlFilter:
    """A compiled expression (``BooleanExpression``)."""

    __slots__ = ("_evaluate", "_marks", "_most_seen", "_seen", "expression", "terms")

    def __init__(self, expression: str, evaluate: Evaluate, terms: int, names: Iterable[str]) -> None:
        self.expression = expression
        self._evaluate = evaluate
        self.terms = terms
        self._marks = tuple([f"\x02{name}\x01".encode() for name in names])
        self._seen: dict[tuple[bytes | None, ...], bool] = {}
        self._most_seen = _MOST_SEEN

    def __repr__(self) -> str:
        return f"<SqlFilter {self.expression!r}, {len(self._seen)} verdicts>"

    def evaluate(self, properties: Mapping[str, str]) -> bool | None:
        """Return whether a message with these properties passes; null is ``None``.

        Raises:
            SqlValueError: a property is not what the expression compares it with.
        """
        return self._evaluate(properties)

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Return whether the message is delivered: neither null nor a value that cannot be read is a match."""
        try:
            return self._evaluate(properties) is True
        except SqlValueError:
            return False

    def matches_record(self, log: memoryview, start: int, end: int) -> bool:
        """Return whether a stored message is delivered, given some bytes of the log and where in them it stands."""
        if len(self._marks) <= _MOST_NAMES:
            known = self._seen.get(find_values(log, start, end, self._marks))
            if known is not None:
                return known
        return self.matches_text(read_property_text(log, start, end))

    def find_runs(
        self, entries: bytes, log: memoryview, base: int, most: int
    ) -> tuple[list[int], int, int, int] | None:
        """Return where the first ``most`` records that are delivered are (``entry_filters.RecordFilter``).

        ``None`` without the compiled codecs, and if more than a few records have values that are not remembered.
        """
        if codecs is None or len(self._marks) > _MOST_NAMES:
            return None
        for _ in range(_MOST_NEW):
            found = codecs.find_known(entries, log, base, (self._marks, self._seen), most)
            if not isinstance(found, int):
                return found
            log_offset, size = _ENTRY.unpack_from(entries, found * _ENTRY_BYTES)
            self.matches_record(log, log_offset - base, log_offset - base + size)  # which is remembered
        return None

    def matches_text(self, property_text: bytes) -> bool:
        """Return whether a message with this text of properties is delivered.

        Nothing but the values that the expression names decides, and messages of a topic have few different ones.
        """
        marks = self._marks
        if len(marks) > _MOST_NAMES:
            return self.matches(parse_properties(property_text))
        values = tuple([find_value(property_text, mark) for mark in marks])
        known = self._seen.get(values)
        if known is None:
            known = self.matches(parse_properties(property_text))
            if self._most_seen and sum([len(value or b"") for value in values]) <= _MOST_VALUE_BYTES:
                if len(self._seen) >= self._most_seen:
                    self._seen.clear()
                self._seen[values] = known
        return known

    def remember_nothing(self) -> None:
        """Forget all verdicts, and keep no more: few share this filter from now on."""
        self._seen, self._most_seen = {}, 0


def compile_sql(expression: str) -> SqlFilter:
    """Return the filter that an expression stands for.

    Raises:
        SqlLimitError: it is too large.
        SqlSyntaxError: it stands for none.
    """
    if len(expression) > MAX_CHARACTERS:
        raise SqlLimitError(f"the expression is {len(expression)} characters, limit is {MAX_CHARACTERS}")
    parser = _Parser(expression)
    return SqlFilter(expression, truth_of(parser.parse()).evaluate, parser.terms, sorted(parser.names))


class _Parser:
    def __init__(self, expression: str) -> None:
        self._words = Words(expression)
        self._depth = 0
        self.terms = 0
        self.names: set[str] = set()

    def parse(self) -> Term:
        return self._joined("OR", self._conjunction, any_of)

    def _conjunction(self) -> Term:
        return self._joined("AND", self._equality, all_of)

    def _joined(self, word: str, read: Callable[[], Term], join: Callable[[list[Term]], Term]) -> Term:
        terms = [read()]
        while self._words.peek() == word:
            self._words.take()
            terms.append(read())
        return join(terms) if len(terms) > 1 else terms[0]

    def _equality(self) -> Term:
        left = self._comparison()
        while True:
            match self._words.peek():
                case "=":
                    self._words.take()
                    left = equality_of(left, self._comparison())
                case "<>":
                    self._words.take()
                    left = inverse_of(equality_of(left, self._comparison()))
                case "IS":
                    self._words.take()
                    is_inverted = self._take_not()
                    self._words.take("NULL")
                    left = inverse_of(is_null(left)) if is_inverted else is_null(left)
                case _:
                    return left

    def _comparison(self) -> Term:
        left = self._unary()
        while True:
            kind = self._words.peek()
            if kind in ORDERS:
                self._words.take()
                left = order_of(left, kind, self._unary())
            elif kind in _NEGATABLE:
                left = self._negatable(left, is_inverted=False)
            elif kind == "NOT":
                self._words.take()
                left = self._negatable(left, is_inverted=True)
            else:
                return left

    def _negatable(self, left: Term, *, is_inverted: bool) -> Term:
        word = self._words.take()
        if word.kind in SEARCHES:
            return search_of(left, word.kind, self._text(), is_inverted=is_inverted)
        if word.kind == "BETWEEN":
            low = self._unary()
            self._words.take("AND")
            high = self._unary()
            if is_inverted:
                return any_of([order_of(left, "<", low), order_of(left, ">", high)])
            return range_of(left, low, high)
        if word.kind == "IN":
            members = membership_of(left, self._texts())
            return inverse_of(members) if is_inverted else members
        raise SqlSyntaxError(f"expected BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH at {word.position}")

    def _unary(self) -> Term:
        changes: list[Callable[[Term], Term]] = []
        while self._words.peek() in _PREFIXES:
            changes.append(_PREFIXES[self._words.take().kind])
        term = self._primary()
        for change in reversed(changes):
            term = change(term)
        return term

    def _primary(self) -> Term:
        self.terms += 1
        if self.terms > MAX_TERMS:
            raise SqlLimitError(f"the expression has more than {MAX_TERMS} values and properties")
        if self._words.peek() == STRING:
            return constant_term(Kind.TEXT, self._text())
        word = self._words.take()
        literal = _LITERALS.get(word.kind)
        if word.kind == NAME:
            self.names.add(word.text)
        if literal is not None:
            return literal(word.text)
        if word.kind != "(":
            raise SqlSyntaxError(f"expected a value or property at {word.position}, there is {word.text or word.kind}")
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise SqlSyntaxError(f"the expression is nested more than {MAX_DEPTH} deep")
        term = self.parse()
        self._words.take(")")
        self._depth -= 1
        return term

    def _take_not(self) -> bool:
        if self._words.peek() != "NOT":
            return False
        self._words.take()
        return True

    def _texts(self) -> list[str]:
        self._words.take("(")
        texts = [self._text()]
        while self._words.peek() == ",":
            self._words.take()
            texts.append(self._text())
        self._words.take(")")
        return texts

    def _text(self) -> str:
        return self._words.take(STRING).text[1:-1].replace("''", "'")


def _unchanged(term: Term) -> Term:
    return term


def _whole_number(text: str) -> Term:
    digits = text.rstrip("lL")
    number = int(digits) if len(digits) <= len(str(MAX_INT64)) else MAX_INT64 + 1
    if number > MAX_INT64:
        raise SqlSyntaxError(f"{digits[:64]} is beyond {MAX_INT64}")
    return constant_term(Kind.INT32 if number <= MAX_INT32 else Kind.INT64, number)


def _decimal_number(text: str) -> Term:
    number = float(text)
    if not 0.0 < number < float("inf"):  # upstream takes Double.MIN_VALUE for the least of all
        raise SqlSyntaxError(f"{text[:64]} is zero or beyond what a double can hold")
    return constant_term(Kind.DOUBLE, number)


_NEGATABLE = frozenset(["BETWEEN", "IN", *SEARCHES])
_PREFIXES = {"+": _unchanged, "-": negative_of, "NOT": inverse_of}
_LITERALS: Mapping[str, Callable[[str], Term]] = {
    NUMBER: _whole_number,
    DECIMAL: _decimal_number,
    NAME: property_term,
    "TRUE": lambda _: constant_term(Kind.TRUTH, value=True),
    "FALSE": lambda _: constant_term(Kind.TRUTH, value=False),
    "NULL": lambda _: constant_term(Kind.TRUTH, value=None),
}
