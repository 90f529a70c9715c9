"""Words of the SQL92 filter, one at a time: nothing behind the word asked for is looked at.

    word      text
    NUMBER    0, or digits that do not begin with 0, with an optional L
    DECIMAL   with a point, an exponent or both: 5. .5 5e3
    STRING    '...' with '' for a quote
    NAME      letters, digits, _ and $, not beginning with a digit; ASCII only
    a keyword in capitals, or = <> < <= > >= ( ) , + -
    END       the end of the text

Rules (RocketMQ 5.4 ``SelectorParser.jj``): the longest word wins; blanks and ``/* */`` are skipped, and ``--`` up to an
end of line that is there; whatever else is an error, but only once the parser has come to it. Behind the last end of
line ``--`` is two marks, so that nothing is looked for there: each character is passed a fixed number of times.
"""

import re
from typing import Final, NamedTuple

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


class SqlSyntaxError(ValueError):
    """An expression that is no filter; its text is the remark of the answer."""


class SqlLimitError(SqlSyntaxError):
    """An expression that may be a filter, and is too large for one."""


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
