"""Tables on disk."""

import asyncio
import pathlib
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import msgspec
import pytest

from rocketlet.broker.group.groups import GroupTable, OffsetFile, OffsetTable
from rocketlet.broker.jobs import SaveJob
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.broker.settings.live import LiveSettings
from rocketlet.broker.topic.config_table import ConfigFolder
from rocketlet.broker.topic.topics import TopicTable
from rocketlet.common.errors import ConfigError
from rocketlet.common.java_json import read_json, read_json_as


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> Iterator[ConfigFolder]:
    """Return an empty folder with a thread of its own."""
    with ThreadPoolExecutor(1) as writer:
        yield ConfigFolder(str(tmp_path / "config"), writer)


def offsets_with(queue_offset: int | None = None) -> OffsetTable:
    """Return a table, empty or with one offset."""
    table = OffsetTable(lambda: 7, version_step=500)
    if queue_offset is not None:
        table.commit("g", "T", 0, queue_offset)
    return table


async def load_offsets(folder: ConfigFolder) -> OffsetTable:
    """Return the offsets that stand in a folder."""
    loaded = offsets_with()
    await asyncio.to_thread(folder.load, loaded)
    return loaded


async def test_saved_table_is_loaded(folder: ConfigFolder) -> None:
    """What was saved fills the next table; without a file nothing happens."""
    fresh = offsets_with()
    folder.load(fresh)
    assert fresh.committed("g", "T", 0) is None
    await folder.save(offsets_with(5))
    folder.load(fresh)
    assert fresh.committed("g", "T", 0) == 5


async def test_unchanged_table_is_not_written(folder: ConfigFolder, tmp_path: pathlib.Path) -> None:
    """A table is written once per change."""
    table = offsets_with(5)
    await folder.save(table)
    (tmp_path / "config" / "consumerOffset.json").unlink()
    await folder.save(table)
    assert not (tmp_path / "config" / "consumerOffset.json").exists()
    table.commit("g", "T", 0, 6)
    await folder.save(table)
    assert (tmp_path / "config" / "consumerOffset.json").exists()


async def test_backup_stands_in_for_a_broken_file(folder: ConfigFolder, tmp_path: pathlib.Path) -> None:
    """A file that cannot be read gives way to the one before it."""
    table = offsets_with(5)
    await folder.save(table)
    table.commit("g", "T", 0, 6)
    await folder.save(table)
    (tmp_path / "config" / "consumerOffset.json").write_text('{"offsetTable":')
    assert (await load_offsets(folder)).committed("g", "T", 0) == 5


async def test_broken_file_without_backup_stops_the_start(folder: ConfigFolder, tmp_path: pathlib.Path) -> None:
    """Offsets are not lost silently."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "consumerOffset.json").write_text("[]")
    with pytest.raises(ConfigError, match=r"consumerOffset\.json"):
        folder.load(offsets_with())


@pytest.mark.parametrize("broken", ["", "garbage", '{"offsetTable":{"T@g":null}}', '{"offsetTable":{"T@g":{0:null}}}'])
async def test_damaged_file_keeps_its_good_backup(folder: ConfigFolder, tmp_path: pathlib.Path, broken: str) -> None:
    """The backup is loaded and stays the backup when the table is saved next; an entry that is null is damage too."""
    table = offsets_with(5)
    await folder.save(table)
    table.commit("g", "T", 0, 6)
    await folder.save(table)
    path = tmp_path / "config" / "consumerOffset.json"
    path.write_text(broken)
    loaded = await load_offsets(folder)
    loaded.commit("g", "T", 0, 7)
    await folder.save(loaded)
    path.write_text(broken)
    assert (await load_offsets(folder)).committed("g", "T", 0) == 5


async def test_null_where_nothing_is_lost_is_read(folder: ConfigFolder, tmp_path: pathlib.Path) -> None:
    """A field that is null has its default, as in Java."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text('{"topicConfigTable":{"T":{"topicName":"T","attributes":null}}}')
    topics = TopicTable(LiveSettings(BrokerConfig(), "127.0.0.1"), lambda: 7)
    folder.load(topics)
    topic = topics.get("T")
    assert topic is not None
    assert topic.attributes == {}


class _UnwritableTable(OffsetTable):
    """A table with something in it that is no JSON."""

    file_name = "topics.json"

    def content(self) -> OffsetFile:
        """Return what cannot be written."""
        nested: Any = 0
        for _ in range(5_000):
            nested = [nested]
        return OffsetFile(group_topic_map=nested)


@pytest.mark.parametrize("is_refused", [False, True])
async def test_each_table_is_saved_whatever_becomes_of_the_others(
    folder: ConfigFolder, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture, is_refused: bool
) -> None:
    """Neither a file that cannot be written nor a table that cannot be encoded keeps the offsets from the disk."""
    offsets = offsets_with(29)
    other: OffsetTable = (
        OffsetTable(lambda: 7, version_step=500) if is_refused else _UnwritableTable(lambda: 7, version_step=500)
    )
    other.file_name = "topics.json"
    other.commit("g", "T", 0, 1)
    if is_refused:
        (tmp_path / "config" / "topics.json.tmp").mkdir(parents=True)
    saving = SaveJob(folder, [other, offsets], LiveSettings(BrokerConfig(), "127.0.0.1"))
    assert await saving.run() == 1_000
    loaded = offsets_with()
    folder.load(loaded)
    assert loaded.committed("g", "T", 0) == 29
    assert "saving config/topics.json failed, retrying within " in caplog.text


@pytest.mark.parametrize(("period_ms", "after_failure_ms"), [(5_000, 1_000), (1_001, 1_000), (300, 300)])
async def test_pause_between_saves(
    period_ms: int, after_failure_ms: int, folder: ConfigFolder, tmp_path: pathlib.Path
) -> None:
    """It is that of the settings; what the disk refused is tried again after a second at the latest."""
    table = offsets_with(5)
    saving = SaveJob(folder, [table], LiveSettings(BrokerConfig(flush_offsets_ms=period_ms), "127.0.0.1"))
    obstacle = tmp_path / "config" / "consumerOffset.json.tmp"
    obstacle.mkdir(parents=True)
    assert [await saving.run(), await saving.run_once()] == [after_failure_ms, False]
    obstacle.rmdir()
    assert [await saving.run(), await saving.run_once(), await saving.run()] == [period_ms, True, period_ms]


async def test_pause_between_saves_is_changed(folder: ConfigFolder) -> None:
    """The next pause is as long as the settings say by then."""
    settings = LiveSettings(BrokerConfig(), "127.0.0.1")
    saving = SaveJob(folder, [offsets_with()], settings)
    assert await saving.run() == 5_000
    settings.change({"flushConsumerOffsetInterval": "700"})
    assert await saving.run() == 700


async def test_failed_save_is_tried_again(folder: ConfigFolder, tmp_path: pathlib.Path) -> None:
    """A change that the disk refused is written by the next save."""
    (tmp_path / "config").write_text("in the way")
    table = offsets_with(5)
    with pytest.raises(OSError, match="config"):
        await folder.save(table)
    (tmp_path / "config").unlink()
    await folder.save(table)
    assert (tmp_path / "config" / "consumerOffset.json").exists()


@pytest.mark.parametrize("kind", [TopicTable, GroupTable, OffsetTable])
@pytest.mark.parametrize("store", ["plain", "killed", "delay-retry", "batchcrc"])
def test_every_field_of_the_java_broker_survives(
    store: str, kind: type[TopicTable | GroupTable | OffsetTable], vectors: pathlib.Path
) -> None:
    """What the Java broker wrote is written again with all its fields and values."""
    with tarfile.open(vectors / "store" / f"{store}.tar.gz") as archive:
        member = archive.extractfile(f"{store}/config/{kind.file_name}")
        assert member is not None
        text = member.read().decode()
    written = msgspec.json.encode(read_json_as(text, kind.content_type))
    assert _leaves(read_json(text)) <= _leaves(read_json(written))


def _leaves(value: Any, path: str = "") -> set[str]:
    """Return path and value of everything in a JSON value."""
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        return {leaf for name, one in table.items() for leaf in _leaves(one, f"{path}/{name}")} | {path}
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return {leaf for place, one in enumerate(items) for leaf in _leaves(one, f"{path}/{place}")} | {path}
    return {f"{path}={value!r}"}
