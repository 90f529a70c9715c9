"""Rows and what is left out are all messages of a log, byte for byte, however the log is cut into splits."""

import pathlib
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import pytest
from crash.disk import Disk
from crash.steps import run_workload
from crash.world import STORE, World
from javastores import STORES, JavaStores

from rocketlet.common.errors import ConfigError, DecodeError
from rocketlet.common.message import INNER_BATCH
from rocketlet.common.record import Record, check_record, decode_batch, decode_record
from rocketlet.export.plan.read_plan import PlanOptions, plan_prefixes
from rocketlet.export.plan.selection import Selection
from rocketlet.export.write.log_reader import LogReader, ReadOptions

Message = tuple[int, int, bytes]
EVERYTHING = ReadOptions(Selection(includes_system=True))


def messages_of(record: Record) -> Iterator[Message]:
    """Yield log offset, queue offset and body of each message in a record."""
    body = record.inflated_body()
    parts = [body]
    if record.sys_flag & INNER_BATCH:
        with suppress(DecodeError):
            parts = [bytes(part.body) for part in decode_batch(body)] or parts
    for place, part in enumerate(parts):
        yield record.log_offset, record.queue_offset + place, bytes(part)


def walk(files: list[pathlib.Path]) -> Iterator[Record]:
    """Yield the records of a log one by one, up to where they end, as a simple reader would."""
    files = [path for path in files if path.stat().st_size]
    for path, behind in zip(files, [*files[1:], None], strict=True):
        data, base, position = path.read_bytes(), int(path.name), 0
        while (size := check_record(data, position, base + position, reserved_bytes=0)) > 0:
            record = decode_record(data, position)
            if record.property_text and not record.property_text[-1] and behind is None:
                return
            yield record
            position += size
        if size != 0 or behind is None or int(behind.name) != base + len(data):
            return


def check(store: str, files: list[pathlib.Path], draw: random.Random) -> int:
    """Read a store in splits of a random size, whole and with a selection; return how many records it has."""
    records = list(walk(files))
    total = sum(path.stat().st_size for path in files)
    split_bytes = draw.choice([draw.randrange(50, 700), draw.randrange(700, 20_000)]) + total // 60
    plan = plan_prefixes([store], PlanOptions(split_bytes=split_bytes))
    reading = LogReader(plan.splits, EVERYTHING, damages=plan.damages, ends=plan.ends)
    rows = Counter(
        (row["logOffset"], row["queueOffset"], row["body"]) for batch in reading for row in batch.to_pylist()
    )
    counters = reading.report.of_store(store)
    wanted = [record for record in records if record.sys_flag & 0xC not in (0x4, 0xC)]
    assert rows == Counter(message for record in wanted for message in messages_of(record))
    assert counters.records == len(records)
    assert not [fault for fault in counters.faults() if "offset" not in fault]
    topic = draw.choice([record.topic for record in records] or ["T"])
    chosen = LogReader(plan.splits, ReadOptions(Selection(topics=frozenset({topic}))), damages=plan.damages)
    count = sum(batch.num_rows for batch in chosen)
    part = chosen.report.of_store(store)
    assert count + sum(part.left_out.values()) == part.messages == counters.messages
    return len(records)


@pytest.mark.parametrize("name", STORES)
def test_java_store_is_complete(name: str, java_stores: JavaStores) -> None:
    """The stores that a Java broker wrote, in splits of random sizes."""
    draw = random.Random(name)
    files = sorted((java_stores[name] / "commitlog").iterdir())
    for _ in range(2):
        assert check(str(java_stores[name]), files, draw)


def states(world: World, folder: pathlib.Path, draw: random.Random) -> Iterator[tuple[str, list[pathlib.Path]]]:
    """Yield what a power loss leaves at some places of a workload, as a store and the files of its log."""
    trace = world.recorder.trace
    for number in range(12):
        disk = Disk()
        for item in trace[: draw.randrange(len(trace) // 4, len(trace) + 1)]:
            disk.apply(item)
        image = draw.choice([disk.certain, disk.everything, lambda disk=disk: disk.sample("state")])()
        root = folder / f"state-{number}"
        root.mkdir()
        image.write(str(root))
        logs = world.config_at(root).log_directories
        directories = list(map(pathlib.Path, logs))
        files = [path for directory in directories if directory.exists() for path in directory.iterdir()]
        named = ",".join(logs) if len(world.log_names) > 1 else str(root / STORE)
        yield named, sorted((path for path in files if path.name.isdecimal()), key=lambda path: path.name)


@pytest.mark.parametrize("seed", ["cedar", "ash"])
def test_states_after_a_power_loss_are_complete(seed: str, tmp_path: pathlib.Path) -> None:
    """What a power loss leaves of our store, in one log directory and in several."""
    draw = random.Random(seed)
    lived = tmp_path / "lived"
    lived.mkdir()
    world = run_workload(lived, seed, 10, is_sync=False)
    counts: list[int] = []
    for store, files in states(world, tmp_path, draw):
        if any(path.stat().st_size for path in files):
            counts.append(check(store, files, draw))
        else:
            with pytest.raises(ConfigError, match=r"is not a store|holds no commit log file"):
                plan_prefixes([store])
    assert max(counts) > 20
