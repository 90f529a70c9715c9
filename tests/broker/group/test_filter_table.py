"""Registered property filters, on a clock that the test moves, and their file."""

import json
import pathlib

import msgspec
import pytest
from javastores import unpack_store

from rocketlet.broker.group.filters import BloomShape, FilterFile, FilterTable
from rocketlet.common.java_json import read_json_as
from rocketlet.common.subscription import Subscription, parse_tag_expression
from rocketlet.testing.manual_clock import ManualClock

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
