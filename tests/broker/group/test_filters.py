"""Filters as values: which code, record and arrival they take."""

import pytest

from rocketlet.broker.group.filters import (
    MAX_CACHED_TERMS,
    TAKES_ALL,
    FilterCache,
    PullFilter,
    property_filter,
    read_properties,
    sql_filter,
    tag_filter,
)
from rocketlet.common.properties import encode_properties, java_hash
from rocketlet.common.record import NewRecord, encode_record
from rocketlet.common.subscription import Subscription, parse_tag_expression
from rocketlet.store.consumequeue.appended import Appended

HOST_V4, HOST_V6 = bytes(8), bytes(20)


def stored(properties: dict[str, str], born_host: bytes = HOST_V4, store_host: bytes = HOST_V4) -> memoryview:
    """Return a record with the properties as it lies in the log."""
    new = NewRecord("T", 0, b"body", encode_properties(properties), properties, 0, 0, 0, born_host)
    return memoryview(encode_record(new, 0, 0, 0, store_host))


def arrival(properties: dict[str, str]) -> Appended:
    """Return the notice of a record with the properties."""
    return Appended(0, 0, 100, "T", 0, 0, 0, properties, None, java_hash(properties.get("TAGS", "")))


def test_filter_of_everything_has_no_stages() -> None:
    """``*`` and a class filter look at nothing, so that a read need not ask."""
    class_filter = Subscription("T", "SomeClass", has_class_filter=True)
    assert tag_filter(parse_tag_expression("T", "*")) is TAKES_ALL
    assert tag_filter(class_filter) is TAKES_ALL
    assert PullFilter(None, None, None) == TAKES_ALL


def test_tag_filter_looks_at_the_code() -> None:
    """A tag filter is decided by the entry alone, for messages in the queue and for those that arrive."""
    wanted = tag_filter(parse_tag_expression("T", "a || b"))
    assert wanted.accepts_code is not None
    assert wanted.accepts_arrival is not None
    assert wanted.accepts_record is None
    for tag, is_wanted in (("a", True), ("b", True), ("c", False)):
        assert wanted.accepts_code(java_hash(tag)) is is_wanted
        assert wanted.accepts_arrival(arrival({"TAGS": tag})) is is_wanted


def test_sql_filter_looks_at_properties() -> None:
    """An SQL filter passes every entry; record and arrival are decided by the same properties."""
    wanted = sql_filter("price > 20")
    assert wanted.accepts_code is None
    assert wanted.accepts_record is not None
    assert wanted.accepts_arrival is not None
    for price, is_wanted in (("21", True), ("20", False), ("dear", False)):
        assert wanted.accepts_record(stored({"price": price})) is is_wanted
        assert wanted.accepts_arrival(arrival({"price": price})) is is_wanted


def test_expression_that_does_not_compile_filters_nothing() -> None:
    """As in 5.4.0, such an expression in a pull takes all."""
    assert sql_filter("price >") is TAKES_ALL


def test_expressions_are_compiled_once() -> None:
    """The same text gives the same filter again, or the same failure; a hundred texts are kept."""
    compile_filter = FilterCache().compile
    good, bad = compile_filter("once > 1"), compile_filter("once >")
    for number in range(98):
        compile_filter(f"a > {number}")
    assert compile_filter("once > 1") is good
    assert compile_filter("once >") is bad
    for number in range(200, 299):
        compile_filter(f"a > {number}")
    assert compile_filter("once >") is bad
    assert compile_filter("once > 1") is not good


def test_compiled_expressions_are_bounded_together() -> None:
    """The terms of all that is kept have a limit; what is too large for a filter is not kept at all."""
    cache = FilterCache()
    for number in range(12):
        cache.compile(" OR ".join([f"a={number}"] * 2_048))
        cache.compile(" OR ".join([f"a={number}"] * 3_000))
        cache.compile("x" * 100_000)
    assert MAX_CACHED_TERMS // 2 < cache.terms <= MAX_CACHED_TERMS
    assert "8 expressions" in repr(cache)


@pytest.mark.parametrize("born_host", [HOST_V4, HOST_V6])
@pytest.mark.parametrize("store_host", [HOST_V4, HOST_V6])
def test_properties_of_a_record(born_host: bytes, store_host: bytes) -> None:
    """Properties are found behind hosts of either length; an empty text gives none."""
    properties = {"TAGS": "a", "区域": "北京"}
    assert read_properties(stored(properties, born_host, store_host)) == properties
    assert read_properties(stored({}, born_host, store_host)) == {}


def test_properties_of_a_damaged_record() -> None:
    """Lengths that lead out of a record give no properties, and no error."""
    record = bytearray(stored({"TAGS": "a"}))
    for at in (84, len(record) - len("TAGS\x01a\x02") - 2):
        for damage in (b"\x7f\xff", b"\xff\xff"):
            damaged = bytearray(record)
            damaged[at : at + 2] = damage
            assert read_properties(memoryview(damaged)) == {}


def test_predicate_sees_the_properties() -> None:
    """Any predicate over properties makes a filter."""
    wanted = property_filter(lambda properties: "a" in properties)
    assert wanted.accepts_arrival is not None
    assert wanted.accepts_arrival(arrival({"a": "1"}))
    assert not wanted.accepts_arrival(arrival({"b": "1"}))
