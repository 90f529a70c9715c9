"""Filters as values, the table of those that groups have registered, and their bits."""

import json
import pathlib

import msgspec
import pytest
from javastores import unpack_store

from rocketlet.broker.group.filters import (
    TAKES_ALL,
    BloomShape,
    FilterCache,
    FilterFile,
    FilterTable,
    PullFilter,
    murmur3_64,
    property_filter,
    read_property_text,
    sql_filter,
    tag_filter,
)
from rocketlet.common.java_json import read_json_as
from rocketlet.common.properties import encode_properties, java_hash, parse_properties
from rocketlet.common.record import NewRecord, encode_record
from rocketlet.common.subscriptions.sql_filter import SqlFilter
from rocketlet.common.subscriptions.subscription import Subscription, parse_tag_expression
from rocketlet.store.consumequeue.appended import Appended
from rocketlet.testing.manual_clock import ManualClock

MAX_CACHED_TERMS = 32_768

HOST_V4, HOST_V6 = bytes(8), bytes(20)


def stored(properties: dict[str, str], born_host: bytes = HOST_V4, store_host: bytes = HOST_V4) -> memoryview:
    """Return a record with the properties as it lies in the log."""
    new = NewRecord("T", 0, b"body", encode_properties(properties), properties, 0, 0, 0, born_host)
    return memoryview(encode_record(new, 0, 0, 0, store_host))


def arrival(properties: dict[str, str]) -> Appended:
    """Return the notice of a record with the properties."""
    return Appended(0, 0, 100, "T", 0, 0, 0, encode_properties(properties), None, java_hash(properties.get("TAGS", "")))


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
        record = stored({"price": price})
        log = memoryview(b"before" + bytes(record) + b"behind")
        assert wanted.accepts_record(log, 6, 6 + len(record)) is is_wanted
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


def test_expression_that_leaves_the_cache_remembers_nothing() -> None:
    """A pull that waits may keep it, and no more than it had when it began to wait."""
    cache = FilterCache()
    first = cache.compile("a > 3")
    assert isinstance(first, SqlFilter)
    assert first.matches_text(b"a\x014")
    assert "1 verdicts" in repr(first)
    for number in range(100):
        cache.compile(f"a > {number} AND b = 1")
    assert first.matches_text(b"a\x014")
    assert "0 verdicts" in repr(first)


def read_properties(record: memoryview) -> dict[str, str]:
    """Return the properties of a record that lies between others."""
    log = memoryview(b"\x02before\x01" + bytes(record) + b"\x02behind\x01")
    return parse_properties(read_property_text(log, 8, 8 + len(record)))


@pytest.mark.parametrize("born_host", [HOST_V4, HOST_V6])
@pytest.mark.parametrize("store_host", [HOST_V4, HOST_V6])
def test_properties_of_a_record(born_host: bytes, store_host: bytes) -> None:
    """Properties are found behind hosts of either length, and without a body; an empty text gives none."""
    properties = {"TAGS": "a", "区域": "北京"}
    assert read_properties(stored(properties, born_host, store_host)) == properties
    assert read_properties(stored({}, born_host, store_host)) == {}
    bodiless = NewRecord("T", 0, b"", encode_properties(properties), properties, 0, 0, 0, born_host)
    assert read_properties(memoryview(encode_record(bodiless, 0, 0, 0, store_host))) == properties


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


JAVA_DEFAULT = BloomShape.of(error_percent=20, consumers=32)


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0),
        ("hello", 0xCBD8A7B341BD9B02),
        ("The quick brown fox jumps over the lazy dog", 0xE34BBC7BBC071B6C),
    ],
)
def test_hash_of_a_text(text: str, hashed: int) -> None:
    """The hash is Murmur3 128 x64 of its author, seed 0, for texts of no, a part of one, and several blocks."""
    assert murmur3_64(text.encode()) == hashed


def test_bits_are_those_of_a_java_broker(vectors: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """The shape for Java's defaults and the bits of a filter are those in the file that a 5.4.0 broker wrote."""
    file = unpack_store(vectors, "delay-retry", tmp_path) / "config" / "consumerFilter.json"
    written = json.loads(file.read_text())["filterDataByTopic"]["DelayTopic"]["groupFilterData"]["CID_sql"]
    bits = {"bitNum": JAVA_DEFAULT.bits, "bitPos": JAVA_DEFAULT.positions_of("CID_sql#DelayTopic")}
    assert bits == written["bloomFilterData"]


@pytest.mark.parametrize(
    ("error_percent", "consumers", "shape"),
    [(20, 32, (112, 3)), (50, 8, (16, 1)), (50, 11, (16, 1)), (50, 12, (24, 1)), (25, 1, (8, 2)), (1, 100, (960, 7))],
)
def test_shape_of_settings(error_percent: int, consumers: int, shape: tuple[int, int]) -> None:
    """More consumers and rarer errors want more bits, whole bytes of them; rarer errors more bits for each text."""
    assert BloomShape.of(error_percent=error_percent, consumers=consumers) == shape


@pytest.mark.parametrize(("error_percent", "consumers"), [(1, 1), (20, 1000), (50, 3), (99, 1)])
def test_positions_lie_inside(error_percent: int, consumers: int) -> None:
    """Whatever the settings, the bits are whole bytes and every position is one of them."""
    shape = BloomShape.of(error_percent=error_percent, consumers=consumers)
    assert shape.bits % 8 == 0
    for number in range(50):
        positions = shape.positions_of(f"group-{number}#topic")
        assert len(positions) == shape.positions
        assert all(0 <= position < shape.bits for position in positions)


DAY_MS = 24 * 3600 * 1000
SHAPE = BloomShape.of(error_percent=20, consumers=32)


def sql(expression: str, version: int, topic: str = "T", kind: str = "SQL92") -> Subscription:
    """Return a subscription by properties."""
    return Subscription(topic, expression, expression_type=kind, version=version)


@pytest.fixture
def clock() -> ManualClock:
    """Return a clock that stands."""
    return ManualClock()


@pytest.fixture
def table(clock: ManualClock) -> FilterTable:
    """Return an empty table."""
    return FilterTable(clock.now_ms, SHAPE, keep_dead_ms=DAY_MS)


def expression_of(table: FilterTable, topic: str = "T") -> str | None:
    """Return what the group filters by."""
    found = table.find(topic, "g")
    return None if found is None else found.expression


def is_dead(table: FilterTable, topic: str = "T") -> bool:
    """Tell whether the filter of the group is dead."""
    found = table.find(topic, "g")
    assert found is not None
    return found.is_dead


def test_higher_version_counts(table: FilterTable) -> None:
    """A higher version replaces the expression, the same and a lower one do not."""
    table.register("g", [sql("a > 1", 5)])
    for version, expected in ((4, "a > 1"), (5, "a > 1"), (6, "a > 2")):
        table.register("g", [sql("a > 2", version)])
        assert expression_of(table) == expected


def test_version_of_the_same_expression_moves_on(table: FilterTable, clock: ManualClock) -> None:
    """A rebalance raises the version only: the filter stays the same, with its birth."""
    table.register("g", [sql("a > 1", 5)])
    born_at_ms = clock.now_ms()
    clock.advance(1000)
    table.register("g", [sql("a > 1", 9)])
    found = table.find("T", "g")
    assert found is not None
    assert (found.client_version, found.born_at_ms) == (9, born_at_ms)


def test_tags_and_empty_expressions_are_not_kept(table: FilterTable) -> None:
    """Tag subscriptions leave no trace, nor does an expression of nothing."""
    table.register("g", [parse_tag_expression("T", "a"), sql("", 1, "U")])
    assert table.content() == FilterFile()
    assert table.change_count == 0


@pytest.mark.parametrize("broken", [sql("a >", 6), sql("a > 1", 6, kind="LUA")])
def test_broken_expression_removes_the_old_one(broken: Subscription, table: FilterTable) -> None:
    """A newer expression that is none leaves the group without a filter; an older one changes nothing."""
    table.register("g", [broken])
    assert table.find("T", "g") is None
    table.register("g", [sql("a > 1", 7)])
    table.register("g", [broken])
    assert expression_of(table) == "a > 1"
    table.register("g", [msgspec.structs.replace(broken, version=8)])
    assert table.find("T", "g") is None


def test_filters_die_with_group_or_subscription(table: FilterTable) -> None:
    """A group that leaves takes all its filters along, a topic that it gives up only that of the topic."""
    table.register("g", [sql("a > 1", 1), sql("a > 1", 1, "U")])
    table.register("other", [sql("a > 1", 1)])
    table.register("g", [sql("a > 1", 1)])
    assert (is_dead(table), is_dead(table, "U")) == (False, True)
    table.unregister("g")
    assert is_dead(table)
    other = table.find("T", "other")
    assert other is not None
    assert not other.is_dead


@pytest.mark.parametrize(("version", "expression"), [(1, "a > 1"), (2, "a > 1"), (2, "a > 2")])
def test_dead_filter_returns(version: int, expression: str, table: FilterTable) -> None:
    """The same version, a newer one and a newer expression bring a filter back; an older version does not."""
    table.register("g", [sql("a > 1", 1)])
    table.unregister("g")
    table.register("g", [sql("a > 1", 0)])
    assert is_dead(table)
    table.register("g", [sql(expression, version)])
    assert not is_dead(table)
    assert expression_of(table) == expression


def test_long_dead_filters_are_dropped(table: FilterTable, clock: ManualClock) -> None:
    """After a day of death a filter is gone, and the file changes; living ones stay however old."""
    table.register("g", [sql("a > 1", 1)])
    table.register("other", [sql("a > 1", 1, "U")])
    table.unregister("g")
    clock.advance(DAY_MS - 1)
    table.drop_long_dead()
    assert table.find("T", "g") is not None
    before = table.change_count
    clock.advance(1)
    table.drop_long_dead()
    assert table.find("T", "g") is None
    assert table.change_count > before
    assert list(table.content().filter_data_by_topic) == ["U"]


def test_change_count_moves_with_the_content(table: FilterTable) -> None:
    """What changes the file is counted, a heartbeat that says nothing new is not."""
    counts = [table.change_count]
    for subscription in (sql("a > 1", 1), sql("a > 1", 2), sql("a > 2", 3)):
        table.register("g", [subscription])
        table.register("g", [subscription])
        counts.append(table.change_count)
    table.unregister("g")
    table.unregister("g")
    counts.append(table.change_count)
    assert counts == [0, 1, 2, 3, 4]
    table.register("g", [sql("a > 2", 3)])
    assert (is_dead(table), table.change_count) == (False, 5)


@pytest.mark.feature("P28")
def test_loaded_filters_count_as_dead(table: FilterTable, clock: ManualClock) -> None:
    """A filter survives its file; it has been dead for 30 s then, but not since before its birth."""
    table.register("g", [sql("a > 1", 7)])
    text = msgspec.json.encode(table.content())
    clock.advance(60_000)
    loaded = FilterTable(clock.now_ms, SHAPE, keep_dead_ms=DAY_MS)
    loaded.load(msgspec.json.decode(text, type=FilterFile))
    found = loaded.find("T", "g")
    assert found is not None
    assert (found.expression, found.client_version, found.is_dead) == ("a > 1", 7, True)
    assert found.dead_at_ms == clock.now_ms() - 30_000
    young = FilterTable(lambda: found.born_at_ms + 1, SHAPE, keep_dead_ms=DAY_MS)
    young.load(msgspec.json.decode(text, type=FilterFile))
    reborn = young.find("T", "g")
    assert reborn is not None
    assert reborn.dead_at_ms == reborn.born_at_ms


def test_file_of_a_java_broker(table: FilterTable, vectors: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """What a 5.4.0 broker wrote is read, and written again with every field as it was."""
    text = (unpack_store(vectors, "delay-retry", tmp_path) / "config" / "consumerFilter.json").read_text()
    table.load(read_json_as(text, FilterFile))
    assert json.loads(msgspec.json.encode(table.content())) == json.loads(text)
    found = table.find("DelayTopic", "CID_sql")
    assert found is not None
    assert (found.is_dead, found.expression) == (True, "TAGS is not null and TAGS <> 'x'")


def test_bits_of_other_settings_are_worked_out_anew(table: FilterTable, clock: ManualClock) -> None:
    """A file that was written for other settings is kept, with bits that fit: a Java broker would pass it over."""
    other = FilterTable(clock.now_ms, BloomShape.of(error_percent=1, consumers=9), keep_dead_ms=DAY_MS)
    other.register("g", [sql("a > 1", 7)])
    table.load(other.content())
    found = table.find("T", "g")
    assert found is not None
    assert found.bloom_filter_data is not None
    assert found.bloom_filter_data.bit_num == SHAPE.bits
    assert found.bloom_filter_data.bit_pos == SHAPE.positions_of("g#T")


def test_file_that_says_little(table: FilterTable, clock: ManualClock) -> None:
    """A filter of which only the expression is known is dead from its loading on, as old as can be, of SQL92."""
    text = '{"filterDataByTopic":{"T":{"groupFilterData":{"g":{"expression":"a > 1"}}}}}'
    table.load(read_json_as(text, FilterFile))
    found = table.find("T", "g")
    assert found is not None
    assert (found.born_at_ms, found.client_version, found.expression_type) == (0, 0, "SQL92")
    assert (found.topic, found.consumer_group, found.is_dead) == ("T", "g", True)
    assert found.dead_at_ms == clock.now_ms() - 30_000


def test_group_that_loses_one_filter_keeps_the_others(table: FilterTable) -> None:
    """When the expression of one topic breaks, the filter of another dies with the group all the same."""
    table.register("g", [sql("a > 1", 1), sql("a > 1", 1, "U")])
    table.register("g", [sql("a >", 2), sql("a > 1", 1, "U")])
    assert (expression_of(table), expression_of(table, "U"), is_dead(table, "U")) == (None, "a > 1", False)
    table.unregister("g")
    assert is_dead(table, "U")


def test_memory_of_a_filter_is_that_of_its_terms() -> None:
    """What waits is bounded by it: a predicate counts as one term, a comparison as two, a tag by its code."""
    one = property_filter(lambda properties: "a" in properties).kept_bytes
    assert [sql_filter(text).kept_bytes // one for text in ("a > 1", "a > 1 OR b > 1 OR c > 1")] == [2, 6]
    two, one = (tag_filter(parse_tag_expression("T", text)).kept_bytes for text in ("a || b", "a"))
    assert two == 2 * one > 0


def test_what_does_not_compile_counts_as_one_term() -> None:
    """However long it is; and what is asked for again counts once."""
    cache = FilterCache()
    for expression in ("a >", "b > " * 100, "a > 1", "a >", "a > 1"):
        cache.compile(expression)
    assert cache.terms == 2 + 2
