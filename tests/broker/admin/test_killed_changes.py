"""A broker that ends in the middle of a change has the old tables at its next start, or the new ones, never a mix.

Each operation of the disk that a change causes is such an end, twice: a kill, after which all that was written is
there, and a power loss, after which only what was flushed is there for certain. The judge is a broker that starts then,
by its answers.
"""

import asyncio
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import pytest
from crash.broker_world import RunningBroker, Wire
from crash.disk import Disk, Image
from crash.recorder import Mark, Recorder
from crash.verify import CarelessFiles
from raw_calls import send_header

from rocketlet.common.codes import ResponseCode
from rocketlet.common.java_json import read_json
from rocketlet.remoting.codec.request_codes import RequestCode as Code
from rocketlet.testing.manual_clock import ManualClock

_LISTED: Final = 40
"""So many that the text of a table takes several sectors of the disk: a torn write would show."""
_TOPICS: Final = 3


@pytest.fixture(autouse=True)
def blocking_calls() -> None:
    """Let the loop's thread block: the recorder looks at files."""


class Change(NamedTuple):
    """A request that changes tables."""

    code: Code
    header: Mapping[str, str] = {}
    body: bytes = b""


class Tables(NamedTuple):
    """What a broker tells of its topics, groups and offsets, but for what it makes by itself."""

    topics: Mapping[str, Any]
    groups: Mapping[str, Any]
    offsets: Mapping[str, Any]


def _topics(queues: int, *, is_batch: bool = False) -> bytes:
    attributes = {"+queue.type": "BatchCQ"} if is_batch else {}
    listed = [
        {"topicName": f"Listed{number}", "readQueueNums": queues, "writeQueueNums": queues, "attributes": attributes}
        for number in range(_LISTED)
    ]
    return msgspec.json.encode({"topicConfigList": listed})


def _groups(retries: int) -> bytes:
    listed = [{"groupName": f"listed{number}", "retryMaxTimes": retries} for number in range(_LISTED)]
    return msgspec.json.encode({"groupConfigList": listed})


TOPIC = {"topic": "T0", "defaultTopic": "TBW102", "readQueueNums": "9", "writeQueueNums": "9", "perm": "6"}
CHANGES = {
    "new topics": Change(Code.UPDATE_AND_CREATE_TOPIC_LIST, body=_topics(3)),
    "new batch topics": Change(Code.UPDATE_AND_CREATE_TOPIC_LIST, body=_topics(3, is_batch=True)),
    "one topic": Change(Code.UPDATE_AND_CREATE_TOPIC, {**TOPIC, "topicFilterType": "SINGLE_TAG", "order": "false"}),
    "new groups": Change(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=_groups(7)),
    "one group": Change(
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=b'{"groupName":"g","retryMaxTimes":7,"consumeEnable":false}'
    ),
    "offsets of another group": Change(Code.CLONE_GROUP_OFFSET, {"srcGroup": "g", "destGroup": "h", "offline": "true"}),
    "deleted topic": Change(Code.DELETE_TOPIC_IN_BROKER, {"topic": "T0"}),
    "deleted group": Change(Code.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g", "cleanOffset": "true"}),
    "group sent elsewhere": Change(
        Code.INVOKE_BROKER_TO_RESET_OFFSET, {"topic": "T0", "group": "g", "timestamp": "0", "isForce": "true"}
    ),
}


async def ask(wire: Wire, change: Change) -> Any:
    """Ask and return the body of a successful answer."""
    answer = await wire.ask(change.code, dict(change.header), change.body)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return read_json(answer.body) if answer.body else None


async def prepare(wire: Wire) -> None:
    """Have topics with a message, a group that has consumed it, and one that has not."""
    for number in range(_TOPICS):
        sent = await wire.ask(Code.SEND_MESSAGE_V2, send_header(f"T{number}", 0), b"x")
        assert sent.code == ResponseCode.SUCCESS, sent.remark
        for group in ("g", "h"):
            await ask(wire, Change(Code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": group}))
            where = {"consumerGroup": group, "topic": f"T{number}", "queueId": "0"}
            committed = "1" if group == "g" else "0"
            await ask(wire, Change(Code.UPDATE_CONSUMER_OFFSET, {**where, "commitOffset": committed}))


async def tables_of(wire: Wire) -> Tables:
    """Return what a broker tells."""
    topics = await ask(wire, Change(Code.GET_ALL_TOPIC_CONFIG))
    groups = await ask(wire, Change(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
    offsets = await ask(wire, Change(Code.GET_ALL_CONSUMER_OFFSET))
    return Tables(topics["topicConfigTable"], groups["subscriptionGroupTable"], offsets["offsetTable"])


class Ends(NamedTuple):
    """The disk at each end, by what happened, and the tables before and after the change."""

    images: Mapping[str, Image]
    old: Tables
    new: Tables


async def ends_of(folder: pathlib.Path, change: Change) -> Ends:
    """Make a change and collect what every end would leave."""
    recorder, clock = Recorder(folder), ManualClock()
    before = RunningBroker(folder / "store", recorder, clock, is_sync=True)
    await before.start()
    await prepare(before.wires[0])
    await before.stop()  # so that nothing of this is still on its way to the disk
    running = RunningBroker(folder / "store", recorder, clock, is_sync=True)
    await running.start()
    wire = running.wires[0]
    old, begun = await tables_of(wire), len(recorder.trace)
    await ask(wire, change)
    recorder.mark("answered")
    new = await tables_of(wire)
    trace = list(recorder.trace)
    await running.stop()
    disk, images = Disk(), dict[str, Image]()
    for number, item in enumerate(trace):
        disk.apply(item)
        if number >= begun - 1:
            name = "answered" if item == Mark("answered") else f"{number - begun}"
            images[f"{name}, killed"] = disk.everything()
            images[f"{name}, power lost"] = disk.certain()
            images[f"{name}, power lost, some of the rest there"] = disk.sample(f"{number}")
        if item == Mark("answered"):
            break
    return Ends(_distinct(images), old, new)


def _distinct(images: Mapping[str, Image]) -> Mapping[str, Image]:
    """Leave out the ends that leave the same files as an earlier one; of two that were answered, one is left."""
    kept: dict[str, Image] = {}
    for name, image in images.items():
        seen = kept.values() if not name.startswith("answered") else ()
        if image not in seen:
            kept[name] = image
    return kept


async def tables_after(folder: pathlib.Path, image: Image) -> Tables:
    """Start a broker on a disk, and return what it tells."""
    await asyncio.to_thread(folder.mkdir)
    await asyncio.to_thread(image.write, str(folder))
    broker = RunningBroker(folder / "store", CarelessFiles(), ManualClock(), is_sync=True)
    await broker.start()
    try:
        return await tables_of(broker.wires[0])
    finally:
        await broker.stop()


@pytest.mark.feature("D1", "D3", "D11")
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_tables_are_old_or_new_whenever_a_broker_ends(tmp_path: pathlib.Path, change: Change) -> None:
    """At every operation of the disk each table is the one or the other, whole; what was answered is there."""
    await asyncio.to_thread((tmp_path / "lived").mkdir)
    images, old, new = await ends_of(tmp_path / "lived", change)
    assert old != new
    found: Sequence[Tables] = [
        await tables_after(tmp_path / f"{number}", image) for number, image in enumerate(images.values())
    ]
    for name, tables in zip(images, found, strict=True):
        wanted = (new,) if name.startswith("answered") else (old, new)
        assert tables in wanted, f"{name}: {_difference(tables, old, new)}"
    assert {tables == new for tables in found} == {True, False}


def _difference(found: Tables, old: Tables, new: Tables) -> str:
    """Say which tables are the old and which the new ones."""
    return ", ".join(
        f"{name} {'old' if have == before else 'new' if have == after else f'neither: {have}'}"
        for name, have, before, after in zip(Tables._fields, found, old, new, strict=True)
        if before != after or have != before
    )
