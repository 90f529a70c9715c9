"""What a reading reads, and which options belong to that."""

import logging
from collections.abc import Mapping, Sequence

import pytest
from logbuilder import LogBuilder

from rocketlet.common.errors import ConfigError
from rocketlet.export.columns.schema import FULL_SCHEMA, SCHEMA
from rocketlet.spark.hybrid.read_modes import (
    HybridOptions,
    LoadSnapshot,
    Mode,
    check_batch,
    check_columns,
    check_stream,
    find_mode,
    parse_hybrid,
    pick_schema,
    reading_options,
    take_snapshot,
)

PLACES = {"path": "/data/a", "nameserver": "192.0.2.1:9876"}


def parse(**options: str) -> HybridOptions:
    """Return the options of a reading of stores and their cluster."""
    return parse_hybrid(reading_options({**PLACES, **options}))


@pytest.mark.parametrize(
    ("options", "mode"),
    [
        ({"path": "/a"}, Mode.STORES),
        ({"paths": '["/a"]'}, Mode.STORES),
        ({"nameserver": "a:1"}, Mode.CLUSTER),
        ({"path": "/a", "nameserver": "a:1"}, Mode.HYBRID),
        ({"PATHS": "[]", "NameServer": "a:1"}, Mode.HYBRID),
    ],
)
def test_mode_follows_from_the_places(options: Mapping[str, str], mode: Mode) -> None:
    """Stores, a cluster, or both."""
    assert find_mode(reading_options(options)) is mode


def test_place_must_be_named() -> None:
    """And options must be known."""
    with pytest.raises(ConfigError, match="no store is named") as caught:
        find_mode(reading_options({"topics": "T"}))
    assert caught.value.key == "path"
    with pytest.raises(ConfigError, match="the rocketmq source has no option topik"):
        reading_options({"topik": "T"})


@pytest.mark.parametrize(
    ("name", "fitting"),
    [
        ("subscribe", {Mode.CLUSTER, Mode.HYBRID}),
        ("topics", {Mode.STORES, Mode.HYBRID}),
        ("splitBytes", {Mode.STORES, Mode.HYBRID}),
        ("pullsAtOnce", {Mode.CLUSTER, Mode.HYBRID}),
        ("columns", {*Mode}),
        ("storeBrokers", {Mode.HYBRID}),
        ("maxOffsetsPerTrigger", set[Mode]()),
    ],
)
def test_options_of_a_batch(name: str, fitting: set[Mode]) -> None:
    """Each belongs to some of the modes."""
    for mode in Mode:
        if mode in fitting:
            check_batch(reading_options({name: "1"}), mode)
        else:
            with pytest.raises(ConfigError, match=f"{name} does not fit: it is no option of a batch that reads {mode}"):
                check_batch(reading_options({name: "1"}), mode)


def test_stores_alone_are_no_stream() -> None:
    """A cluster is, with stores and without."""
    check_stream(Mode.CLUSTER)
    check_stream(Mode.HYBRID)
    with pytest.raises(ConfigError, match="stores alone are no stream") as caught:
        check_stream(Mode.STORES)
    assert caught.value.key == "nameserver"


@pytest.mark.parametrize(
    ("options", "mode", "names"),
    [
        ({}, Mode.STORES, SCHEMA.names),
        ({}, Mode.CLUSTER, [*SCHEMA.names, "brokerName"]),
        ({}, Mode.HYBRID, [*SCHEMA.names, "brokerName"]),
        ({"includeSystemTopics": "true"}, Mode.STORES, FULL_SCHEMA.names),
        ({"includeSystemTopics": "true"}, Mode.CLUSTER, [*FULL_SCHEMA.names, "brokerName"]),
        ({"columns": "body, topic ,"}, Mode.STORES, ["body", "topic"]),
        ({"columns": "brokerName,body"}, Mode.HYBRID, ["brokerName", "body"]),
    ],
)
def test_columns_of_a_reading(options: Mapping[str, str], mode: Mode, names: Sequence[str]) -> None:
    """Those that are named, in that order, or all."""
    given = reading_options(options)
    schema = pick_schema(given, mode)
    assert schema.names == names
    check_columns(given, schema)


@pytest.mark.parametrize(("columns", "reason"), [(" , ", "columns names no column"), ("brokerName", "no column brok")])
def test_columns_that_are_not_there(columns: str, reason: str) -> None:
    """Stores know no broker."""
    with pytest.raises(ConfigError, match=reason):
        pick_schema(reading_options({"columns": columns}), Mode.STORES)


def test_schema_that_was_given_is_that_of_the_columns() -> None:
    """In their order; without option columns any will do."""
    schema = pick_schema(reading_options({"columns": "body,topic"}), Mode.STORES)
    check_columns(reading_options({}), schema)
    with pytest.raises(ConfigError, match="columns and the given schema contradict each other") as caught:
        check_columns(reading_options({"columns": "topic,body"}), schema)
    assert caught.value.key == "columns"


@pytest.mark.parametrize(
    ("options", "topics", "pattern"),
    [
        ({}, set[str](), ".*"),
        ({"topics": "A,B"}, {"A", "B"}, None),
        ({"subscribe": "A"}, {"A"}, None),
        ({"subscribePattern": "A.*"}, set[str](), "A.*"),
    ],
)
def test_topics_are_those_of_both(options: Mapping[str, str], topics: set[str], pattern: str | None) -> None:
    """Of stores and cluster; what the cluster gives is not narrowed again, but for tags and keys."""
    found = parse(**options, tags="t", includeSystemTopics="true")
    assert found.stores.selection.topics == found.live.choice.topics == topics
    assert found.live.choice.pattern == pattern
    assert found.live.selection.topics == frozenset()
    assert found.live.selection.includes_system
    assert found.live.selection.tags == found.stores.selection.tags == {"t"}
    assert not parse().stores.selection.includes_system
    assert parse().live.selection.includes_system


@pytest.mark.parametrize(
    ("text", "brokers"),
    [
        ("{}", {}),
        ('{"/data/a": "broker-a", "/data/b": null}', {"/data/a": "broker-a", "/data/b": None}),
        ("null", {}),
    ],
)
def test_stores_may_be_given_their_brokers(text: str, brokers: Mapping[str, str | None]) -> None:
    """And null for one that runs no more."""
    assert parse(storeBrokers=text).store_brokers == brokers
    assert parse().store_brokers == {}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"subscribe": "A", "topics": "A"}, "subscribe and topics contradict each other"),
        ({"subscribePattern": "A", "topics": "A"}, "subscribePattern and topics contradict each other"),
        ({"startingOffsets": "earliest"}, "startingOffsets does not fit: where the stores end, the cluster goes on"),
        ({"endingOffsets": "latest"}, "endingOffsets does not fit"),
        ({"assign": "{}"}, "assign does not fit"),
        ({"startingOffsetsByTimestampStrategy": "latest"}, "Strategy does not fit"),
        ({"storeBrokers": '{"/a": 1}'}, "storeBrokers is not of the form"),
        ({"storeBrokers": "[1]"}, "storeBrokers is not of the form"),
    ],
)
def test_options_that_do_not_fit_both(options: Mapping[str, str], reason: str) -> None:
    """Of queues nothing is said; times are of messages."""
    with pytest.raises(ConfigError, match=reason):
        parse(**options)
    assert parse(startingTimestamp="5").live.starting.at_ms == 5


def test_snapshot_of_stores_is_where_they_end(log: LogBuilder) -> None:
    """With the bytes of their logs."""
    log.add(b"one")
    log.roll()
    log.add(b"two")
    log.save()
    found = take_snapshot({"path": str(log.root)})
    assert found == LoadSnapshot({str(log.root): log.end}, log_bytes=log.end)
    assert LoadSnapshot() == LoadSnapshot({}, {}, 0)


@pytest.mark.parametrize("options", [{}, {"path": "/nothing"}, {"path": "/a", "maxOffsetsPerTrigger": "1"}, {"x": "y"}])
def test_what_cannot_be_looked_at_has_no_snapshot(options: Mapping[str, str], caplog: pytest.LogCaptureFixture) -> None:
    """It is told when it is read."""
    with caplog.at_level(logging.DEBUG):
        assert take_snapshot(options) is None
    assert "where a table ends is found when it is read: " in caplog.text
