"""The SQL92 filter against the table of the real one, and what no input may do to it."""

import json
import pathlib
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common.properties import encode_properties, parse_properties
from rocketlet.common.subscriptions.sql_filter import SqlLimitError, SqlSyntaxError, SqlValueError, compile_sql

MARKS = "5 0 2147483648 1.5 .5 5L 07 'x' '5' '' ( ( ) ) , + - = <> < <= > >= /* */ -- \n ;"
NAMES = "a b TRUE false NULL NOT AND OR BETWEEN IN IS CONTAINS startswith EndsWith"
WORDS = [*MARKS.split(" "), *NAMES.split(" "), "IS NULL", "IN ('a', 'b')"]
NUMBERS = ["5", "-7", "1.5", "NaN", "99999999999", " 5 ", "0x1p3", "\u0665", "1" * 5000]
VALUES = st.sampled_from([*NUMBERS, "x", "", "true"])
Outcome = bool | str | None


def outcome(expression: str, **properties: str) -> Outcome:
    """Return what an expression gives, "error" when a value cannot be read."""
    try:
        return compile_sql(expression).evaluate(properties)
    except SqlValueError:
        return "error"


@pytest.mark.feature("P26")
def test_table_of_the_real_filter(vectors: pathlib.Path) -> None:
    """Each expression compiles, and gives true, false, null or an error, as the filter of 5.4.0 does."""
    head, *cases = json.loads((vectors / "codec/sql92.json").read_text())
    differences: list[object] = []
    for case in cases:
        expected = case.get("results", ["no filter"])
        expected = ["error" if isinstance(result, dict) else result for result in expected]
        try:
            got = [outcome(case["expression"], **properties) for properties in head["propertySets"]]
        except SqlSyntaxError:
            got = ["no filter"]
        if got != expected:
            differences.append((case["expression"], expected, got))
    assert len(cases) > 130
    assert differences == []


@pytest.mark.feature("P26")
@pytest.mark.parametrize(
    ("expression", "value", "expected"),
    [
        ("a > 5", "99999999999", "error"),
        ("a > 2147483648", "99999999999", True),
        ("a > -2147483649", "99999999999", True),
        ("a > 5", "\u0667", True),
        ("a > 5", "\U0001d7d7", "error"),
        ("a > 5", "+7", True),
        ("a > 5", "", "error"),
        ("a > 1.5", " 2.5f\t", True),
        ("a > 1.5", "0x1p3", True),
        ("a > 1.5", "0x1p99999", True),
        ("a < -1.5", "-0x1p99999", True),
        ("a > 1.5", "1e999", True),
        ("a > 1.5", "NaN", True),
        ("a = 1.5", "nan", "error"),
        ("a < b", "-0.0", True),
        ("a = 9.3e18", "9300000000000000000", True),
        ("9223372036854775807 = 9.223372036854775807E18", "", True),
        ("1 = TRUE", "", False),
        ("'true' = TRUE", "", True),
        ("(a = 'x') = 'true'", "x", "error"),
        ("(a = 'x') = TRUE", "x", True),
        ("a = 'x' = 1", "x", False),
        ("5 = -missing", "", False),
        ("-missing = 5", "", None),
        ("-(a = 'x') < 5", "x", None),
        ("-(a > 5) < 5", "x", "error"),
        ("missing = missing", "", True),
        ("a NOT BETWEEN 6 AND 1", "3", True),
        ("a BETWEEN 3 AND -1", "0", False),
        ("a NOT IN ('x', 'y', 'z', 'u', 'v')", "w", True),
        ("- -5 = a", "5", True),
        ("+a = +5", "5", True),
        ("NOT NOT a = 5", "5", False),
    ],
)
def test_reading_of_values(expression: str, value: str, expected: Outcome) -> None:
    """Text is read as the constant beside it tells, by the rules of ``Integer``, ``Long`` and ``Double``.

    Found with the filter of 5.4.0, beside which 140,000 random expressions were run.
    """
    assert outcome(expression, a=value, b="0.0") == expected


@pytest.mark.parametrize(
    ("expression", "same"),
    [
        ("a = 5 b ; é", "a = 5"),
        ("a = 5 'open", None),
        ("a = 5;", None),
        ("a = 5 é", None),
        ("(a = 5 b", None),
        ("a = 5 -- no end of line", "a = 5"),
        ("a -- with an end\n = 5", "a = 5"),
        ("a /* * ** / */ = /**/ 5", "a = 5"),
        ("a = 5 /* no end", None),
        ("a = 5 NOT", None),
        ("a = 5 IS 5", None),
        ("a = 5.5.5", "a = 5.5"),
        ("a = 0L", "a = 0"),
        ("NOT - a", None),
        ("+ + NOT a = 5", "(NOT a) = 5"),
        ("a = 1e-400", None),
        ("a = 1e400", None),
        ("a = 4.9e-324", "a = 0.0049e-321"),
        ("a BETWEEN TRUE AND TRUE", None),
        ("TRUE = 'x'", None),
        ("5 IN ('5')", None),
        ("a IN ('5',)", None),
        ("a = " + "9" * 5000, None),
    ],
)
def test_beginning_that_counts(expression: str, same: str | None) -> None:
    """The filter is the longest beginning that is one; only the word behind it must be a word."""
    if same is None:
        with pytest.raises(SqlSyntaxError):
            compile_sql(expression)
    else:
        for value in ("0", "5", "5.5", "x"):
            assert outcome(expression, a=value) == outcome(same, a=value)


def test_error_tells_where() -> None:
    """The text of the error names the place and what stands there."""
    with pytest.raises(SqlSyntaxError, match=r"^expected a value or property at 8, there is >$"):
        compile_sql("a = 5 = > 3")
    with pytest.raises(SqlSyntaxError, match=r"^expected \) at 6, there is end of the text$"):
        compile_sql("(a = 5")
    with pytest.raises(SqlSyntaxError, match=r"^no word begins with '!' at 2$"):
        compile_sql("a != 5")


def test_neither_null_nor_error_is_a_match() -> None:
    """A message is delivered only if the filter is true of it."""
    expression = compile_sql("a > 3 OR b = '1'")
    assert expression.matches({"a": "4"})
    assert not expression.matches({"a": "2"})
    assert not expression.matches({"a": "abc", "b": "1"})
    assert not expression.matches({})
    assert compile_sql("b = '1' OR a > 3").matches({"a": "abc", "b": "1"})
    assert repr(expression) == "<SqlFilter \"a > 3 OR b = '1'\", 0 verdicts>"


@pytest.mark.parametrize("word", ["AND", "OR"])
def test_long_chain(word: str) -> None:
    """As many conditions in a row as fit need no stack, neither to compile nor to evaluate."""
    conditions = [f"a{'<>' if word == 'AND' else '='}'{number}'" for number in range(2_048)]
    expression = compile_sql(f" {word} ".join(conditions))
    assert expression.terms == 4_096
    assert expression.matches({"a": "2047"}) is (word == "OR")
    assert expression.matches({"a": "x"}) is (word == "AND")


@pytest.mark.parametrize(
    "form", ["{0}a = 5{1}", "NOT {0}a = 5{1}", "{0}a{1} = 5 = TRUE", "{2}a", "a = 5{3}", "a CONTAINS '5'{4}"]
)
def test_depth_is_bounded(form: str) -> None:
    """Nesting of any kind is taken up to a limit and refused beyond it with a sentence; nothing overflows."""

    def nest(count: int) -> str:
        return form.format("(" * count, ")" * count, "NOT " * count, " = TRUE" * count, " CONTAINS '5'" * count)

    assert compile_sql(nest(97)).evaluate({"a": "5"}) in (True, False)
    for count in (101, 2_000):
        with pytest.raises(SqlSyntaxError, match="nested more than 100 deep"):
            compile_sql(nest(count))


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        (" OR ".join(["a=1"] * 2_049), "the expression has more than 4096 values and properties"),
        ("+" * 32_000 + "a OR b" * 2_000, "the expression is 44000 characters, limit is 32768"),
        (f"a IN ('{'x' * 32_768}')", "the expression is 32777 characters, limit is 32768"),
    ],
)
def test_size_is_bounded(expression: str, reason: str) -> None:
    """Beyond a length, and beyond a number of terms, nothing is compiled; the error has both numbers."""
    with pytest.raises(SqlLimitError, match=f"^{reason}$"):
        compile_sql(expression)


@given(st.one_of(st.text(max_size=60), st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join)), VALUES, VALUES)
def test_no_input_does_more_than_be_refused(expression: str, one: str, other: str) -> None:
    """Whatever stands in an expression and in the properties, there is a result or one of the two declared errors."""
    try:
        compiled = compile_sql(expression)
    except SqlSyntaxError:
        return
    for properties in ({"a": one, "b": other}, {"a": one}, {}):
        try:
            result = compiled.evaluate(properties)
        except SqlValueError:
            result = None
        assert result in (True, False, None)
        assert compiled.matches(properties) is (result is True)


CHUNKS = st.tuples(st.sampled_from(["a", "b", "aa", "TAGS", ""]), VALUES).map("\x01".join)
MANY_NAMES = " OR ".join(f"n{number} = 'x'" for number in range(8)) + " OR a > 3"
EXPRESSIONS = [
    MANY_NAMES,
    "a > 3",
    "a IS NULL OR b = '5'",
    "a BETWEEN -7 AND 5",
    "NOT (a = '')",
    "b <> 'x' AND aa <> 'x'",
    "TRUE",
]


@given(st.sampled_from(EXPRESSIONS), st.lists(st.lists(CHUNKS, max_size=4).map("\x02".join), min_size=1, max_size=6))
def test_text_of_properties_is_judged_as_they_are(expression: str, texts: Sequence[str]) -> None:
    """Also one whose values were met before, a doubled name, an empty value."""
    compiled = compile_sql(expression)
    for text in [*texts, *texts]:
        assert compiled.matches_text(text.encode()) == compiled.matches(parse_properties(text))


def test_verdicts_are_remembered_within_bounds() -> None:
    """By the values that the expression names, however many messages have them; long ones are not kept."""
    compiled = compile_sql("a > 3")
    for number in range(10):
        assert compiled.matches_text(encode_properties({"a": "4", "b": str(number)}))
        assert not compiled.matches_text(encode_properties({"a": "x" * 129}))
    assert repr(compiled) == "<SqlFilter 'a > 3', 1 verdicts>"
    many = compile_sql(MANY_NAMES)
    assert many.matches_text(b"a\x014")
    assert "0 verdicts" in repr(many)  # nine names are not looked for one by one
    counts: set[int] = set()
    for number in range(1_000):
        assert compiled.matches_text(encode_properties({"a": str(number)})) == (number > 3)
        counts.add(int(repr(compiled).split()[-2]))
    assert max(counts) == 128
    compiled.remember_nothing()
    assert compiled.matches_text(b"a\x014")
    assert repr(compiled) == "<SqlFilter 'a > 3', 0 verdicts>"
