from collections.abc import Callable

import pytest

from rocketlet.common.errors import ConfigError
from rocketlet.spark.options.option_values import OptionValues

KNOWN = ("path", "topics", "splitBytes", "minPartitions", "failOnDataLoss", "onDamage", "assign", "startingTimestamp")


def given(**options: str) -> OptionValues:
    """Return options as Spark hands them over."""
    return OptionValues(options, KNOWN, "the source")


def test_values_are_read_whatever_the_case_of_the_name() -> None:
    """Names come in any case, and each kind of value as text."""
    options = given(
        topics=" A, B ,,",
        SPLITBYTES="64m",
        minpartitions=" 7 ",
        failOnDataLoss="FALSE",
        ondamage="Skip",
        assign='{"T": [0, 1]}',
        startingTimestamp="1970-01-01T00:00:02Z",
    )
    assert "splitBytes" in options
    assert "path" not in options
    assert options.names("topics") == {"A", "B"}
    assert options.size("splitBytes", 1) == 64 << 20
    assert options.count("minPartitions") == 7
    assert not options.flag("failOnDataLoss", default=True)
    assert options.one_of("onDamage", ["fail", "skip"], "fail") == "skip"
    assert options.json("assign") == {"T": [0, 1]}
    assert options.instant("startingTimestamp") == 2000


def test_defaults_stand_for_what_is_not_given() -> None:
    """What is not given is its default, or nothing."""
    options = given()
    assert options.text("path") is None
    assert options.text("path", "x") == "x"
    assert options.names("topics") == frozenset()
    assert options.size("splitBytes", 5) == 5
    assert options.count("minPartitions") is None
    assert options.flag("failOnDataLoss", default=True)
    assert options.one_of("onDamage", ["fail", "skip"], "fail") == "fail"
    assert options.json("assign") is None
    assert options.instant("startingTimestamp") is None


@pytest.mark.parametrize(
    ("text", "size"), [("134217728", 134_217_728), ("1k", 1024), ("2 KB", 2048), ("3MiB", 3 << 20), ("1G", 1 << 30)]
)
def test_sizes_have_units(text: str, size: int) -> None:
    """A size is a number of bytes, or of a power of 1024."""
    assert given(splitBytes=text).size("splitBytes", 1) == size


Ask = Callable[[OptionValues], object]


def flag(options: OptionValues) -> object:
    """Ask for a flag."""
    return options.flag("failOnDataLoss", default=True)


def size(options: OptionValues) -> object:
    """Ask for a size."""
    return options.size("splitBytes", 1)


def count(options: OptionValues) -> object:
    """Ask for a count."""
    return options.count("minPartitions")


def word(options: OptionValues) -> object:
    """Ask for one of two words."""
    return options.one_of("onDamage", ["fail", "skip"], "fail")


@pytest.mark.parametrize(
    ("name", "text", "ask", "sentence"),
    [
        ("splitBytes", "much", size, "splitBytes is 'much', not a positive size"),
        ("splitBytes", "0m", size, "splitBytes is '0m', not a positive size"),
        ("minPartitions", "1.5", count, "minPartitions is '1.5', not a whole number"),
        ("minPartitions", "0", count, "minPartitions is 0, but must be at least 1"),
        ("failOnDataLoss", "no", flag, "'no', neither true nor false"),
        ("onDamage", "go", word, "'go', none of fail, skip"),
    ],
)
def test_value_that_cannot_be_used_is_refused(name: str, text: str, ask: Ask, sentence: str) -> None:
    """The error is one sentence that names the option."""
    with pytest.raises(ConfigError) as caught:
        ask(given(**{name: text}))
    assert sentence in str(caught.value)
    assert caught.value.key == name


def test_text_that_cannot_be_parsed_is_refused() -> None:
    """Neither what is no JSON nor what is no time is taken."""
    with pytest.raises(ConfigError, match="assign is not JSON: "):
        given(assign="{").json("assign")
    with pytest.raises(ConfigError, match="startingTimestamp is 'soon'"):
        given(startingTimestamp="soon").instant("startingTimestamp")


def test_options_that_do_not_go_together_are_refused() -> None:
    """Of two that contradict each other, and of those that do not fit, one is named."""
    with pytest.raises(ConfigError, match="path and topics contradict each other"):
        given(path="a", topics="T").refuse_both("path", "topics")
    with pytest.raises(ConfigError, match="topics does not fit: no store is named"):
        given(TOPICS="T").refuse_others(["path"], "no store is named")


def test_unknown_name_is_refused() -> None:
    """An unknown option is refused at once, and the nearest known one named."""
    with pytest.raises(ConfigError, match=r"the source has no option splitByte; did you mean splitBytes\?"):
        given(splitByte="1m")


def test_options_that_fit_are_not_refused() -> None:
    """Options are compared whatever their case, and one of two that contradict may be given."""
    options = given(TOPICS="T")
    options.refuse_both("path", "topics")
    options.refuse_others(["topics"], "nothing")


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("7b", 7), ("1t", 1 << 40), ("5 m", 5 << 20), ("5ib", 5), ("3KIB", 3072), (" 2g ", 2 << 30)],
)
def test_sizes_have_all_units(text: str, size: int) -> None:
    """In any case, with and without the letters for bytes."""
    assert given(splitBytes=text).size("splitBytes", 1) == size


@pytest.mark.parametrize("text", ["1x", "-1", "1.5m", "m", "", "1m2"])
def test_other_sizes_are_refused(text: str) -> None:
    """As what has no number before its unit."""
    with pytest.raises(ConfigError, match="not a positive size"):
        given(splitBytes=text).size("splitBytes", 1)


@pytest.mark.parametrize(("text", "least", "number"), [("1", 1, 1), ("0", 0, 0), ("-5", -5, -5), (" 12 ", 1, 12)])
def test_counts_begin_at_a_number(text: str, least: int, number: int) -> None:
    """Which is 1 where nothing else is said."""
    assert given(minPartitions=text).count("minPartitions", least=least) == number
    with pytest.raises(ConfigError, match=f"must be at least {least}"):
        given(minPartitions=str(least - 1)).count("minPartitions", least=least)
    assert given().count("minPartitions", 9, least=least) == 9


def test_options_can_be_added() -> None:
    """Beside those that are there, or in place of one."""
    options = given(topics="T").plus("minPartitions", "3")
    assert (options.text("topics"), options.count("minPartitions")) == ("T", 3)
    assert options.plus("TOPICS".lower(), "U").text("topics") == "U"
    with pytest.raises(ConfigError, match="the source has no option nothing"):
        options.plus("nothing", "1")


def test_errors_name_the_option_that_is_too_much() -> None:
    """As it is known."""
    with pytest.raises(ConfigError) as caught:
        given(PATH="a", topics="T").refuse_both("path", "topics")
    assert caught.value.key == "topics"
    with pytest.raises(ConfigError) as caught:
        given(TOPICS="T", path="a").refuse_others(["path"], "no store is named")
    assert caught.value.key == "topics"
    with pytest.raises(ConfigError) as caught:
        given(splitByte="1m")
    assert caught.value.key == "splitByte"
    given(topics="T").refuse_both("topics", "path")


def test_empty_values_are_no_values_of_flags_and_words() -> None:
    """Their defaults count."""
    assert given(failOnDataLoss=" ").flag("failOnDataLoss", default=True)
    assert not given(failOnDataLoss="").flag("failOnDataLoss", default=False)
    assert given(onDamage="").one_of("onDamage", ["fail", "skip"], "skip") == "skip"
    assert given(failOnDataLoss="True").flag("failOnDataLoss", default=False)
