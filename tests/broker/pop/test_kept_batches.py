"""What was popped in order, over restarts of the broker, and in the file of Java's."""

import json
import pathlib
import shutil
import tarfile
from typing import Any

import pytest
from javastores import VECTORS
from pops import ack_fields, ask_pop, read_popped
from raw_calls import Caller, open_caller

from rocketlet.broker.pop.ordered_batches import KEEP_MS, Attempt, OrderedBatches, OrderedPlace, OrderFile
from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.codes import ResponseCode
from rocketlet.common.java_json import read_table_as
from rocketlet.remoting.codec.request_codes import RequestCode as Code
from rocketlet.testing.manual_clock import ManualClock

FILE = "consumerOrderInfo.json"
JAVAS = {0: ([0, 1, 2], 2)}


async def send_three(caller: Caller) -> None:
    """Make the topic with one queue and three messages."""
    for number in range(3):
        answer = await caller.send("T", b"o%d" % number, queue_id=0, default_topic_queue_nums=1)
        assert answer.code == ResponseCode.SUCCESS, answer.remark


async def pop_in_order(caller: Caller, attempt: str) -> list[bytes]:
    """Return the bodies of what is handed out."""
    answer = await ask_pop(caller, "T", order=True, attemptId=attempt, invisibleTime=60_000)
    return [message.body for message in read_popped(answer, "broker-a")]


def table(root: pathlib.Path) -> dict[str, Any]:
    """Return the batches in the file."""
    return json.loads((root / "config" / FILE).read_text())["table"]


@pytest.mark.feature("O4")
@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
async def test_batch_outlives_the_broker(
    settings: dict[str, str], clock: ManualClock, tmp_path: pathlib.Path, is_killed: bool
) -> None:
    """The queue stays blocked until the lease is over, and what was acknowledged does not come again."""
    root = pathlib.Path(settings["storePathRootDir"])
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        await send_three(caller)
        answer = await ask_pop(caller, "T", order=True, attemptId="a", invisibleTime=60_000)
        first, *_ = read_popped(answer, "broker-a")
        assert (await caller.ask(Code.ACK_MESSAGE, ack_fields(first))).code == ResponseCode.SUCCESS
        if is_killed:
            await broker.parts.state.saving.run_once()
            shutil.copytree(root, tmp_path / "copy")
            settings["storePathRootDir"] = str(tmp_path / "copy")
    batch = table(pathlib.Path(settings["storePathRootDir"]))["T@g"]["0"]
    assert (batch["o"], batch["cm"], batch["a"], batch["i"]) == ([0, 1, 2], 1, "a", 60_000)
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        assert await pop_in_order(caller, "b") == []
        assert await pop_in_order(caller, "a") == [b"o1", b"o2"]
        await clock.elapse(60_000)
        assert await pop_in_order(caller, "b") == [b"o1", b"o2"]


async def test_batches_of_what_is_gone_are_forgotten(settings: dict[str, str], clock: ManualClock) -> None:
    """Of a deleted topic, and of a group."""
    root = pathlib.Path(settings["storePathRootDir"])
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        await send_three(caller)
        for group in ("g", "h", "i"):
            await ask_pop(caller, "T", order=True, attemptId="a", consumerGroup=group)
        await broker.parts.state.saving.run_once()
        assert set(table(root)) == {"T@g", "T@h", "T@i"}
        await caller.ask(Code.DELETE_SUBSCRIPTIONGROUP, {"groupName": "h", "cleanOffset": "true"})
        await ask_pop(caller, "T", order=True, attemptId="a", consumerGroup="i")
        await broker.parts.state.saving.run_once()
        assert set(table(root)) == {"T@g", "T@i"}
        await caller.ask(Code.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
        await caller.send("Other")
        await ask_pop(caller, "Other", order=True, attemptId="b")
        await broker.parts.state.saving.run_once()
        assert set(table(root)) == {"Other@g"}


def test_batches_that_nobody_has_touched_for_a_day_are_forgotten() -> None:
    """The file has only those that are younger."""
    now_ms = 1_000
    batches = OrderedBatches(lambda: now_ms)
    batches.hand_out(OrderedPlace("T", "old", 0), [0], Attempt("a", 1_000))
    now_ms += KEEP_MS
    batches.hand_out(OrderedPlace("T", "young", 0), [0], Attempt("a", 1_000))
    assert set(batches.content().table) == {"T@old", "T@young"}
    now_ms += 1
    assert set(batches.content().table) == {"T@young"}


def test_file_of_java_is_read_and_written_as_it_was(tmp_path: pathlib.Path) -> None:
    """The one of a 5.4.0 broker that had handed messages out in order."""
    with tarfile.open(VECTORS / "store/delay-retry.tar.gz") as archive:
        archive.extract(f"delay-retry/config/{FILE}", tmp_path, filter="data")
    text = (tmp_path / "delay-retry/config" / FILE).read_text()
    content = read_table_as(text, OrderFile)
    assert content.table
    [batches] = content.table.values()
    assert {queue_id: (batch.queue_offsets, batch.acked) for queue_id, batch in batches.items()} == JAVAS
