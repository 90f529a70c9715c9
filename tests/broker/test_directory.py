"""What a broker leaves in its directory."""

import os
import pathlib
import re

import pytest
from raw_calls import open_caller, topic_header

from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.testing.manual_clock import ManualClock

SIZES = {
    r"commitlog/0{20}": 1_073_741_824,
    r"consumequeue/T/0/0{20}": 6_000_000,
    r"batchconsumequeue/B/0/0{20}": 13_800_000,
    r"index/\d{17}": 420_000_040,
    r"checkpoint": 4_096,
    r"lock": 4,
}
SIZE_KEYS = {
    "mappedFileSizeCommitLog",
    "mappedFileSizeConsumeQueue",
    "mapperFileSizeBatchConsumeQueue",
    "maxHashSlotNum",
    "maxIndexNum",
}
FOREIGN = (
    "lmqConsumerOffset.json",
    "timermetrics",
    "topicQueueMapping.json",
    "transactionMetrics",
)
UPDATE_AND_CREATE_TOPIC = 17


async def run_broker(settings: dict[str, str], clock: ManualClock) -> None:
    """Run a broker that stores a message in each kind of queue."""
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        await caller.ask(UPDATE_AND_CREATE_TOPIC, topic_header("B", "BatchCQ"))
        for topic in ("T", "B"):
            assert (await caller.send(topic, properties="KEYS\x01k\x02")).code == 0


def file_sizes(root: pathlib.Path) -> dict[str, int]:
    """Return the length of every file below a directory."""
    return {str(path.relative_to(root)): path.stat().st_size for path in root.rglob("*") if path.is_file()}


@pytest.mark.feature("H9")
async def test_files_have_javas_names_and_sizes(settings: dict[str, str], clock: ManualClock) -> None:
    """With default settings every file has its full length, few of its bytes on disk, and a name of Java's form."""
    defaults = {key: value for key, value in settings.items() if key not in SIZE_KEYS}
    await run_broker(defaults, clock)
    root = pathlib.Path(settings["storePathRootDir"])
    found = file_sizes(root)
    for pattern, size in SIZES.items():
        (name,) = [one for one in found if re.fullmatch(pattern, one)]
        assert found.pop(name) == size
    assert {os.path.dirname(name) for name in found} == {"config"}
    assert (root / "lock").read_bytes() == b"lock"


async def test_nothing_of_other_parts_is_touched(settings: dict[str, str], clock: ManualClock) -> None:
    """Files that rocketlet does not write stay as they are, so that a Java broker finds them again."""
    root = pathlib.Path(settings["storePathRootDir"])
    foreign = [root / "config" / f"{name}{end}" for name in FOREIGN for end in ("", ".bak")]
    foreign += [root / name for name in ("abort.bak", "rocksdbstore/LOCK")]
    for path in foreign:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content of {path.name}")
    await run_broker(settings, clock)
    assert [path.read_text() for path in foreign] == [f"content of {path.name}" for path in foreign]
