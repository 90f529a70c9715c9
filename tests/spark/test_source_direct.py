"""Which reader and writer options and columns lead to, and which Python workers run; without Spark's Java process."""

import logging
import os
import pathlib
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from logbuilder import LogBuilder, make_place
from pushing import fill
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo
from pyspark.sql.types import BinaryType, StructField, StructType
from stores import StoreDirectory
from threaded_cluster import ThreadedCluster

from rocketlet.common.errors import ConfigError
from rocketlet.export.columns.schema import FULL_SCHEMA, SCHEMA
from rocketlet.export.write.pulled_reader import BROKER_COLUMN
from rocketlet.spark import source
from rocketlet.spark.hybrid.hybrid_reader import HybridReader, HybridStreamReader
from rocketlet.spark.hybrid.store_reader import StoreReader
from rocketlet.spark.live.cluster_reader import ClusterReader
from rocketlet.spark.options.filter_pushdown import LIMIT_KEY, PUSH_KEY, LimitReader
from rocketlet.spark.sink.sink_writer import BatchSink, StreamSink
from rocketlet.spark.source import (
    LimitingDataSource,
    PushingDataSource,
    RocketMQDataSource,
    choose_python,
    register,
)
from rocketlet.spark.stream.stream_reader import ClusterStreamReader

BODY = StructType([StructField("body", BinaryType())])


@pytest.fixture
def places(log: LogBuilder, cluster: ThreadedCluster) -> dict[str, dict[str, str]]:
    """Return what names a store, a cluster, and both."""
    log.add(topic="T")
    log.save()
    store, live = {"path": str(log.root)}, {"nameserver": cluster.nameserver}
    return {"store": store, "cluster": {**live, "subscribe": "T"}, "both": {**store, **live, "topics": "T"}}


def test_places_lead_to_readers(places: dict[str, dict[str, str]]) -> None:
    """Of stores, of a cluster, or of both; stores alone are no stream."""
    assert RocketMQDataSource.name() == "rocketmq"
    kinds = {"store": StoreReader, "cluster": ClusterReader, "both": HybridReader}
    for name, kind in kinds.items():
        found = RocketMQDataSource(places[name])
        schema = found.schema()
        own = [] if name == "store" else [BROKER_COLUMN]
        assert schema.names == [*SCHEMA.names, *own]
        assert type(found.reader(schema)) is kind
        if name == "store":
            with pytest.raises(ConfigError, match="stores alone are no stream"):
                found.streamReader(schema)
        else:
            assert type(found.streamReader(schema)) is (
                ClusterStreamReader if name == "cluster" else HybridStreamReader
            )


def test_columns_must_be_those_that_are_asked_for(places: dict[str, dict[str, str]]) -> None:
    """Of batches and streams, and options those of a batch."""
    for name in ("store", "cluster", "both"):
        found = RocketMQDataSource({**places[name], "columns": "topic"})
        schema = found.schema()
        assert schema.names == ["topic"]
        with pytest.raises(ConfigError, match="columns and the given schema contradict each other"):
            found.reader(BODY)
        if name != "store":
            with pytest.raises(ConfigError, match="columns and the given schema contradict each other"):
                found.streamReader(BODY)
    stream = RocketMQDataSource({**places["cluster"], "maxOffsetsPerTrigger": "3"})
    with pytest.raises(ConfigError, match="maxOffsetsPerTrigger does not fit: it is no option of a batch"):
        stream.reader(BODY)
    assert stream.streamReader(BODY) is not None


@pytest.mark.parametrize("made", ["nothing", "directory", "empty log"])
def test_missing_store_is_told_with_the_columns(made: str, tmp_path: pathlib.Path) -> None:
    """Also beside a cluster; of a cluster alone no store is looked for."""
    make_place(tmp_path / "place", made)
    for options in ({}, {"nameserver": "127.0.0.1:1", "topics": "T"}):
        with pytest.raises(ConfigError, match="place"):
            RocketMQDataSource({"path": str(tmp_path / "place"), **options}).schema()
    live = RocketMQDataSource({"nameserver": "127.0.0.1:1", "subscribe": "T", "includeSystemTopics": "true"})
    assert live.schema().names == [*FULL_SCHEMA.names, BROKER_COLUMN]


@pytest.mark.parametrize(
    ("kind", "wish", "takes_filters", "takes_limits"),
    [
        (RocketMQDataSource, None, False, False),
        (RocketMQDataSource, "true", True, False),
        (PushingDataSource, None, True, False),
        (PushingDataSource, "false", False, False),
        (LimitingDataSource, None, True, True),
        (LimitingDataSource, "false", False, False),
        (LimitingDataSource, "true", True, True),
    ],
)
def test_filters_and_limits_are_taken_by_kind_and_wish(
    log: LogBuilder, kind: type[RocketMQDataSource], wish: str | None, *, takes_filters: bool, takes_limits: bool
) -> None:
    """A wish goes before what the source does by itself; limits only where filters are taken."""
    log.add()
    log.save()
    options = {"path": str(log.root), **({} if wish is None else {"pushFilters": wish})}
    found = kind(options)
    reader: Any = found.reader(found.schema())
    assert isinstance(reader, LimitReader) == takes_limits
    one = EqualTo(("topic",), "T")
    assert list(reader.pushFilters([one])) == ([] if takes_filters else [one])


def count_of(found: RocketMQDataSource) -> int:
    """Return how many rows a load has."""
    reader: Any = found.reader(found.schema())
    return sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part))


def test_one_load_reads_what_was_there_then(
    places: dict[str, dict[str, str]], log: LogBuilder, cluster: ThreadedCluster
) -> None:
    """Whatever is stored afterwards."""
    cluster.send("T", ["0", "1"])
    store, live = RocketMQDataSource(places["store"]), RocketMQDataSource(places["cluster"])
    log.add()
    log.save()
    cluster.send("T", ["2", "3", "4"])
    assert (count_of(store), count_of(live)) == (1, 2)
    assert count_of(RocketMQDataSource(places["store"])) == 2
    assert count_of(RocketMQDataSource(places["cluster"])) == 5


def test_load_of_what_is_not_there_yet_reads_it_when_it_is(tmp_path: pathlib.Path, cluster: ThreadedCluster) -> None:
    """Nothing was seen then, so all is read."""
    later = LogBuilder(tmp_path / "later")
    store = RocketMQDataSource({"path": str(later.root)})
    live = RocketMQDataSource({"nameserver": cluster.nameserver, "subscribe": "Later"})
    later.add()
    later.save()
    cluster.create_topic("Later", 1)
    cluster.send("Later", ["0", "1"])
    assert (count_of(store), count_of(live)) == (1, 2)


def test_table_of_the_catalog_brings_its_options(tmp_path: pathlib.Path) -> None:
    """Unless the reading itself names a place, in whatever case."""
    directory = StoreDirectory(tmp_path / "store")
    fill(directory)
    properties = {"provider": "rocketmq", "option.topics": "Rare", "path": str(directory.root)}
    kept = RocketMQDataSource(properties).schema()
    for options, rows in (({}, 4), ({"PATH": str(directory.root)}, 145), ({"topics": "Orders"}, 141)):
        reader: Any = RocketMQDataSource(options).reader(kept)
        assert sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part)) == rows


def test_writers_are_those_of_tables_and_streams(cluster: ThreadedCluster) -> None:
    """Which only add rows."""
    found = RocketMQDataSource({"nameserver": cluster.nameserver, "topic": "T"})
    assert isinstance(found.writer(BODY, False), BatchSink)  # Spark's order
    assert isinstance(found.streamWriter(BODY, False), StreamSink)  # as above
    for write in (found.writer, found.streamWriter):
        with pytest.raises(ConfigError, match="cannot overwrite"):
            write(BODY, True)  # as above


class Context:
    """What is asked of a Spark context."""

    def __init__(self, python: str, master: str, includes: list[str], settings: dict[str, str]) -> None:
        self.pythonExec = python
        self.master = master
        self._python_includes = includes
        self._settings = settings

    def getConf(self) -> dict[str, str]:  # noqa: N802 # Spark's name
        """Return the settings."""
        return self._settings


@pytest.fixture
def other(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Return a folder for another Python; nobody has chosen one."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    return tmp_path


def python_in(folder: pathlib.Path, *, has_package: bool) -> str:
    """Return a Python that has the package, or has not."""
    path = folder / "python3"
    path.write_text(f"#!/bin/sh\nexit {0 if has_package else 1}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("master", "includes", "settings", "has_package", "outcome"),
    [
        ("local", [], {}, False, "this"),
        ("local[2]", [], {}, True, "this"),
        ("local[2]", ["x.zip"], {}, False, "this"),
        ("local[2]", [], {"spark.pyspark.python": "p"}, False, "warned"),
        ("local[2]", [], {"spark.pyspark.driver.python": "p"}, False, "warned"),
        ("local[2]", [], {"spark.pyspark.driver.python": "p"}, True, "kept"),
        ("local[2]", ["x.zip"], {"spark.pyspark.python": "p"}, False, "kept"),
        ("spark://node:7077", [], {}, False, "warned"),
        ("spark://node:7077", [], {}, True, "kept"),
        ("spark://node:7077", ["x.zip"], {}, False, "kept"),
    ],
)
def test_workers_run_a_python_that_has_the_package(
    other: pathlib.Path,
    caplog: pytest.LogCaptureFixture,
    master: str,
    includes: list[str],
    settings: dict[str, str],
    outcome: str,
    *,
    has_package: bool,
) -> None:
    """This one where nobody has chosen another and all run here; else one sentence where the package is not there."""
    python = python_in(other, has_package=has_package)
    context = Context(python, master, includes, settings)
    session: Any = SimpleNamespace(_sc=context)
    with caplog.at_level(logging.WARNING):
        choose_python(session)
    assert context.pythonExec == (sys.executable if outcome == "this" else python)
    assert len(caplog.messages) == (outcome == "warned")
    assert all(f"workers run {python}, which has no rocketlet" in text for text in caplog.messages)


def test_variable_is_a_choice(
    other: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Which is kept; a Python that is not there has no package either, and a client's workers are elsewhere."""
    monkeypatch.setenv("PYSPARK_PYTHON", "chosen")
    python = str(other / "missing")
    context = Context(python, "local", [], {})
    session: Any = SimpleNamespace(_sc=context)
    with caplog.at_level(logging.WARNING):
        choose_python(session)
        for nobody in (SimpleNamespace(), SimpleNamespace(_sc=None)):
            client: Any = nobody
            choose_python(client)
    assert context.pythonExec == python
    (sentence,) = caplog.messages
    assert sentence.startswith(f"Spark's workers run {python}, which has no rocketlet: set PYSPARK_PYTHON")
    assert sentence.endswith(f"as {sys.executable}")


def test_python_of_this_environment_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By whatever name."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    beside = next(path for path in pathlib.Path(sys.executable).parent.glob("python*") if os.access(path, os.X_OK))
    context = Context(str(beside), "local", [], {})
    session: Any = SimpleNamespace(_sc=context)
    choose_python(session)
    assert context.pythonExec == str(beside)
    assert not caplog.messages


class Session:
    """A session that runs elsewhere, its settings, and what is registered with it."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.settings = dict(settings)
        self.registered: list[type[DataSource]] = []
        self.conf = SimpleNamespace(get=self.settings.get, set=self.settings.__setitem__)
        self.dataSource = SimpleNamespace(register=self.registered.append)


@pytest.mark.parametrize(
    ("is_apart", "has_limits", "settings", "kind", "left", "is_warned"),
    [
        (False, True, {}, RocketMQDataSource, {}, False),
        (True, False, {}, PushingDataSource, {PUSH_KEY: "true"}, False),
        (True, True, {}, LimitingDataSource, {PUSH_KEY: "true", LIMIT_KEY: "true"}, False),
        (True, True, {LIMIT_KEY: "false"}, PushingDataSource, {PUSH_KEY: "true", LIMIT_KEY: "false"}, False),
        (True, False, {PUSH_KEY: "false"}, PushingDataSource, {PUSH_KEY: "false"}, True),
    ],
)
def test_source_is_registered_as_spark_can_use_it(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    settings: dict[str, str],
    kind: type[DataSource],
    left: dict[str, str],
    *,
    is_apart: bool,
    has_limits: bool,
    is_warned: bool,
) -> None:
    """And settings are switched on that its user has not set."""

    def keeps_apart(_: object) -> bool:
        return is_apart

    monkeypatch.setattr(source, "keeps_plans_apart", keeps_apart)
    if has_limits:
        monkeypatch.setattr(DataSourceReader, "pushLimit", DataSourceReader.pushFilters, raising=False)
    session = Session(settings)
    given: Any = session
    with caplog.at_level(logging.WARNING):
        register(given)
    assert session.registered == [kind]
    assert session.settings == left
    assert len(caplog.messages) == is_warned
