from typing import Any

import pytest
from javastores import java_cases

from rocketlet.common.properties import java_hash
from rocketlet.common.subscriptions.subscription import Subscription, parse_tag_expression

CASES = java_cases("codec/subscriptions.json")


@pytest.mark.parametrize("case", CASES, ids=lambda case: repr(case["expression"]))
def test_expression_is_read_as_java_does(case: dict[str, Any]) -> None:
    """Every recorded expression gives Java's tags and codes, or an error."""
    result = case["result"]
    if "error" in result:
        with pytest.raises(ValueError, match="holds no tag"):
            parse_tag_expression("T", case["expression"])
        return
    found = parse_tag_expression("T", case["expression"], version=5)
    assert found == Subscription(
        "T", result["subString"], frozenset(result["tagsSet"]), frozenset(result["codeSet"]), "TAG", 5
    )


@pytest.mark.parametrize("expression", [" ", " || ", "\t||"])
def test_expression_of_blanks_is_an_error(expression: str) -> None:
    """An expression of which no tag is left is refused, though Java lets some of them match nothing."""
    with pytest.raises(ValueError, match="holds no tag"):
        parse_tag_expression("T", expression)


def test_codes_of_the_tags_are_accepted() -> None:
    """A code passes as signed 32 bits, and where a queue entry has none."""
    wanted = parse_tag_expression("T", "TagA || polygenelubricants")
    assert wanted.accepts_code(java_hash("TagA"))
    assert wanted.accepts_code(-(2**31))
    assert wanted.accepts_code(2**31)
    assert wanted.accepts_code(None)
    assert not wanted.accepts_code(java_hash("TagB"))
    assert not wanted.accepts_code(0)


def test_everything_is_accepted_without_tags() -> None:
    """A subscription to * takes every code and every tag, a tag named * among them."""
    wanted = parse_tag_expression("T", "*")
    assert wanted.accepts_all
    assert wanted.accepts_code(0)
    assert wanted.accepts_code(42)
    assert wanted.accepts_tags(None)
    assert wanted.accepts_tags("*")


def test_tags_with_equal_hashes_are_told_apart() -> None:
    """Aa and BB share a code, which the broker lets pass; the client drops the tag that was not asked for."""
    wanted = parse_tag_expression("T", "BB")
    assert wanted.accepts_code(java_hash("Aa"))
    assert not wanted.accepts_tags("Aa")
    assert not wanted.accepts_tags("bb")
    assert not wanted.accepts_tags(None)
    assert wanted.accepts_tags("BB")


def test_class_filter_mode_passes_everything() -> None:
    """A subscription with a class filter leaves the choice to the filter."""
    wanted = Subscription("T", "some.Class", frozenset({"A"}), frozenset({65}), has_class_filter=True)
    assert wanted.accepts_all
    assert wanted.accepts_code(1)
    assert wanted.accepts_tags("B")
