"""Of a store after a power loss, or with damage, Spark reads what an export reads; place and reason are told."""

import json
import logging
import pathlib
from typing import NamedTuple

import pytest
from crash.disk import Disk, Image
from crash.steps import run_workload
from crash.world import SIZES, STORE, World
from javastores import Row, comparable
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rocketlet.export.columns.schema import SCHEMA
from rocketlet.export.plan.read_plan import plan_prefixes
from rocketlet.export.plan.selection import Selection
from rocketlet.export.report.report import StoreCounters
from rocketlet.export.write.log_reader import LogReader, ReadOptions
from rocketlet.spark.hybrid.read_modes import reading_options
from rocketlet.spark.hybrid.store_reader import StoreReader
from rocketlet.spark.options.store_options import parse_store_options

SEGMENT_BYTES: int = SIZES["segment_bytes"]
SEEDS = {"one directory": "cedar", "several directories": "ash"}


class Exported(NamedTuple):
    """What an export gives of a store, and what it says of it."""

    rows: list[Row]
    counters: StoreCounters

    @property
    def damage(self) -> str:
        """Where and why it stopped."""
        assert self.counters.damage is not None
        return str(self.counters.damage)


def export(store: str) -> Exported:
    """Read what there is before damage."""
    plan = plan_prefixes([store])
    options = ReadOptions(Selection(includes_system=True))
    reading = LogReader(plan.splits, options, damages=plan.damages, ends=plan.ends)
    rows = [row for batch in reading for row in batch.to_pylist()]
    return Exported(comparable(rows), reading.report.of_store(store))


def read_table(spark: SparkSession, store: str, **options: str) -> list[Row]:
    """Read the table of a store."""
    reader = spark.read.format("rocketmq").options(includeSystemTopics=True, **options)
    frame = reader.option("paths", json.dumps([store])).load().select(*SCHEMA.names)
    return comparable(row.asDict() for row in frame.collect())


def live(folder: pathlib.Path, seed: str) -> World:
    """Run a workload whose messages are not flushed one by one."""
    lived = folder / "lived"
    lived.mkdir()
    return run_workload(lived, seed, 10, is_sync=False)


def lose_power(world: World, position: int) -> Disk:
    """Return the disk as it is when the power goes after so many operations."""
    disk = Disk()
    for item in world.recorder.trace[:position]:
        disk.apply(item)
    return disk


def write(image: Image, world: World, folder: pathlib.Path) -> str:
    """Write a disk into a new folder; return the store as a reader names it."""
    folder.mkdir()
    image.write(str(folder))
    directories = world.config_at(folder).log_directories
    return ",".join(directories) if len(world.log_names) > 1 else str(folder / STORE)


@pytest.mark.parametrize("logs", SEEDS)
@pytest.mark.parametrize("kind", ["certain", "everything", "sample"])
def test_table_after_a_power_loss(kind: str, logs: str, spark: SparkSession, tmp_path: pathlib.Path) -> None:
    """Whatever a power loss left, the table has the messages of an export, which says where the log ends."""
    world = live(tmp_path, SEEDS[logs])
    disk = lose_power(world, len(world.recorder.trace) * 3 // 4)
    image = {"certain": disk.certain, "everything": disk.everything, "sample": lambda: disk.sample("crash")}[kind]()
    store = write(image, world, tmp_path / "state")
    exported = export(store)
    assert exported.rows
    assert exported.counters.end is not None
    assert read_table(spark, store) == exported.rows


def find_torn(world: World, folder: pathlib.Path) -> str:
    """Return the store in a state, as late as possible, in which the log ends in a part of a record."""
    for position in range(len(world.recorder.trace), 0, -1):
        store = write(lose_power(world, position).sample("torn"), world, folder / f"state-{position}")
        (end,) = plan_prefixes([store]).ends.values()
        if end.reason not in ("nothing was written", "the file is full"):
            return store
    raise AssertionError("no state ends in a torn record")


def test_table_of_a_torn_record(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    """A record that arrived in part ends the table; the export names its place and what is wrong with it."""
    world = live(tmp_path, SEEDS["one directory"])
    store = find_torn(world, tmp_path)
    exported = export(store)
    end = exported.counters.end
    assert end is not None
    assert any(pathlib.Path(end.path).read_bytes()[end.position :][:100])
    assert int(pathlib.Path(end.path).name) + end.position > exported.rows[-1]["logOffset"]
    assert read_table(spark, store) == exported.rows


def spoil(store: str, damage: str, places: list[int]) -> None:
    """Remove a file of the log, or change a byte of a record; say that the store was cleanly closed."""
    first, second, *_ = sorted(pathlib.Path(store, "commitlog").iterdir())
    pathlib.Path(store, "abort").unlink()
    if damage == "missing file":
        second.unlink()
        return
    at = {"body": int(first.name) + 88, "second file": int(second.name) + 4, "last but one": places[-2] + 4}[damage]
    path = first.with_name(f"{at - at % SEGMENT_BYTES:020d}")
    content = bytearray(path.read_bytes())
    content[at % SEGMENT_BYTES] ^= 0xFF
    path.write_bytes(content)


@pytest.mark.parametrize("damage", ["missing file", "second file", "last but one", "body"])
def test_table_of_a_damaged_store(
    damage: str, spark: SparkSession, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The job fails with the place and reason that the export tells; on request, the table is the export's prefix."""
    world = live(tmp_path, SEEDS["one directory"])
    image = lose_power(world, len(world.recorder.trace)).everything()
    store = write(image, world, tmp_path / "state")
    places = sorted({row["logOffset"] for row in export(store).rows})
    spoil(store, damage, places)
    exported = export(store)
    assert len({row["logOffset"] for row in exported.rows}) < len(places)
    with pytest.raises(PySparkException) as caught:
        read_table(spark, store)
    assert exported.damage in str(caught.value)
    assert read_table(spark, store, onDamage="prefix") == exported.rows
    with caplog.at_level(logging.WARNING):
        given = reading_options({"path": store, "onDamage": "prefix"})
        StoreReader(parse_store_options(given), SCHEMA).partitions()
    assert caplog.messages == [f"store {store} is damaged, reading only what comes before: {exported.damage}"]
