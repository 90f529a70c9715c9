"""Stores with queues, and readings of them with and without pushing down."""

import json
import pathlib
import shutil
import struct
from collections.abc import Callable
from typing import Any

from javastores import Row
from stores import TINY, StoreDirectory, new_record

from rocketlet.common.properties import index_hash
from rocketlet.export.plan.read_plan import PlanOptions, plan_stores
from rocketlet.export.plan.selection import Selection
from rocketlet.export.plan.split import Split
from rocketlet.export.pushdown.pushdown import PushdownOptions, PushdownResult, push_down
from rocketlet.export.report.report import Report
from rocketlet.export.write.log_reader import LogReader, ReadOptions

TOPICS = {"Orders": 3, "Rare": 2, "%RETRY%group": 1}
MESSAGES = 160
# Their hashes are equal.
TAGS = ("Aa", "BB", "C", None)
KEYS = ("Aa", "BB", "other")
ENTRY_BYTES = 20
AGE_BYTES = 11_000


def fill(directory: StoreDirectory, step_ms: int = 10, messages: int = MESSAGES) -> None:
    """Write messages of a few topics, one of which is rare, and close the store."""
    with directory.open() as store:
        for number in range(messages):
            directory.now_ms += step_ms
            topic = "Rare" if number % 40 == 7 else "%RETRY%group" if number % 11 == 5 else "Orders"
            properties = {"UNIQ_KEY": f"ID{number:08d}", "KEYS": f"k{number} {KEYS[number % 3]}"}
            tag = TAGS[number % 4]
            if tag is not None:
                properties["TAGS"] = tag
            body = b"%06d" % number + b"x" * (number % 50)
            queue_id = (number // 40 if topic == "Rare" else number) % TOPICS[topic]
            store.append(new_record(topic, queue_id, body, **properties))
            store.commit()
    configure(directory.root)


def configure(root: pathlib.Path, topics: dict[str, int] | None = None) -> None:
    """Write which topics there are, as a broker does."""
    table = {
        topic: {"topicName": topic, "readQueueNums": count, "writeQueueNums": count}
        for topic, count in (topics or TOPICS).items()
    }
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))


def plan(root: pathlib.Path, split_bytes: int = 1500) -> list[Split]:
    """Return small splits of a store."""
    return plan_stores([str(root)], PlanOptions(split_bytes=split_bytes))


def read(splits: list[Split], selection: Selection) -> tuple[list[Row], Report]:
    """Return the rows of splits in log order, and the report."""
    reading = LogReader(splits, ReadOptions(selection))
    rows = [row for batch in reading for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: (row["logOffset"], row["queueOffset"])), reading.report


def looked_at(report: Report) -> int:
    """Return how many records a reading looked at."""
    return sum(counters.records for counters in report.stores)


def push(
    root: pathlib.Path, selection: Selection, split_bytes: int = 1500, **options: Any
) -> tuple[PushdownResult, Report, list[Row]]:
    """Read what is left of a store when all is pushed down."""
    pushed = push_down(plan(root, split_bytes), selection, PushdownOptions(**options))
    rows, report = read(pushed.splits, selection)
    return pushed, report, rows


def check(
    root: pathlib.Path, selection: Selection, split_bytes: int = 1500, **options: Any
) -> tuple[PushdownResult, int]:
    """Compare a reading with what was pushed down to one without; return what was pushed, and the records looked at."""
    pushed, report, rows = push(root, selection, split_bytes, **options)
    assert rows == read(plan(root, split_bytes), selection)[0]
    return pushed, looked_at(report)


Spoil = Callable[[pathlib.Path], object]


def kill(root: pathlib.Path) -> None:
    """Leave the store as a killed broker does, with a checkpoint that says nothing."""
    (root / "abort").touch()
    (root / "checkpoint").unlink()


def kill_with_times(root: pathlib.Path) -> None:
    """Leave it as a killed broker does, with a checkpoint of the time at which it was left."""
    (root / "abort").touch()


def lose_queue(root: pathlib.Path) -> None:
    """Remove the files of one queue."""
    shutil.rmtree(root / "consumequeue" / "Orders" / "1")


def lose_topic(root: pathlib.Path) -> None:
    """Remove all queues of a topic."""
    shutil.rmtree(root / "consumequeue" / "Orders")


def lose_queues(root: pathlib.Path) -> None:
    """Remove all queues."""
    shutil.rmtree(root / "consumequeue")


def lose_config(root: pathlib.Path) -> None:
    """Remove what says how many queues a topic has, and a queue."""
    shutil.rmtree(root / "config")
    shutil.rmtree(root / "consumequeue" / "Orders" / "2")


def lose_middle(root: pathlib.Path) -> None:
    """Remove a file in the middle of each queue that has so many."""
    for queue in (root / "consumequeue").glob("*/*"):
        files = sorted(queue.iterdir())
        if len(files) > 2:
            files[1].unlink()


def lose_heads(root: pathlib.Path) -> None:
    """Remove the first files of the queues, though the log still begins at 0."""
    for queue in (root / "consumequeue").glob("*/*"):
        for path in sorted(queue.iterdir())[:-1]:
            path.unlink()


def age_queues(root: pathlib.Path) -> None:
    """Let queues end where they ended long ago, as a copy of another age."""
    for path in (root / "consumequeue").glob("*/*/*"):
        content = bytearray(path.read_bytes())
        for at in range(0, len(content), ENTRY_BYTES):
            if struct.unpack_from(">q", content, at)[0] > AGE_BYTES:
                content[at : at + ENTRY_BYTES] = bytes(ENTRY_BYTES)
        path.write_bytes(content)


def clear_entries(root: pathlib.Path) -> None:
    """Fill entries in the middle of queues with zeros."""
    for queue in (root / "consumequeue").glob("*/*"):
        path = min(queue.iterdir())
        content = bytearray(path.read_bytes())
        content[3 * ENTRY_BYTES : 5 * ENTRY_BYTES] = bytes(2 * ENTRY_BYTES)
        path.write_bytes(content)


def point_elsewhere(root: pathlib.Path) -> None:
    """Let an entry of each queue name a place inside the record before its own."""
    for queue in (root / "consumequeue").glob("*/*"):
        path = min(queue.iterdir())
        content = bytearray(path.read_bytes())
        at, size, code = struct.unpack_from(">qiq", content, 2 * ENTRY_BYTES)
        struct.pack_into(">qiq", content, 2 * ENTRY_BYTES, at - 8, size, code)
        path.write_bytes(content)


def leave_tails(root: pathlib.Path) -> None:
    """Leave entries behind the end of the queues, as the Java broker does when it cuts them off."""
    for queue in (root / "consumequeue").glob("*/*"):
        path = max(queue.iterdir())
        content = bytearray(path.read_bytes())
        end = next((at for at in range(0, len(content), ENTRY_BYTES) if not any(content[at : at + ENTRY_BYTES])), None)
        if end is not None and end + ENTRY_BYTES <= len(content):
            struct.pack_into(">qiq", content, end, 300, 120, 0)
            path.write_bytes(content)


def lose_index(root: pathlib.Path) -> None:
    """Remove the first index file, as a broker does when it is left by force."""
    min((root / "index").iterdir()).unlink()


def rot_index(root: pathlib.Path) -> None:
    """Fill the slots of an index file with zeros."""
    path = min((root / "index").iterdir())
    content = bytearray(path.read_bytes())
    content[40:240] = bytes(200)
    path.write_bytes(content)


def turn_chains(root: pathlib.Path) -> None:
    """Let the entries of one key in the index lead to themselves, or to nothing."""
    first, *others = sorted((root / "index").iterdir())
    for path, previous in ((first, None), *((other, -1) for other in others)):
        content = bytearray(path.read_bytes())
        (count,) = struct.unpack_from(">i", content, 36)
        for number in range(1, count):
            at = 40 + 4 * TINY["index_slots"] + 20 * number
            if struct.unpack_from(">i", content, at) == (index_hash("Orders#Aa"),):
                struct.pack_into(">i", content, at + 16, number if previous is None else previous)
        path.write_bytes(content)


SPOILS: dict[str, Spoil] = {
    each.__name__: each
    for each in (
        kill,
        kill_with_times,
        lose_queue,
        lose_topic,
        lose_queues,
        lose_config,
        lose_middle,
        lose_heads,
        age_queues,
        clear_entries,
        point_elsewhere,
        leave_tails,
        lose_index,
        rot_index,
        turn_chains,
    )
}
