"""Every request against a store whose commit fails, or whose flush fails: none that would store something succeeds."""

import pathlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
from badinput import samples
from badinput.variations import encode_body
from halfcalls import Half, send_half
from raw_calls import Caller, open_caller, send_header
from slow_disk import SlowDisk

from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.codes import ResponseCode
from rocketlet.common.ids import RecallHandle, encode_host, format_offset_id, format_recall_handle
from rocketlet.remoting.codec.request_codes import RequestCode as Code
from rocketlet.testing.manual_clock import ManualClock

STORING = {
    Code.SEND_MESSAGE,
    Code.SEND_MESSAGE_V2,
    Code.SEND_BATCH_MESSAGE,
    Code.CONSUMER_SEND_MSG_BACK,
    Code.END_TRANSACTION,
    Code.RESUME_CHECK_HALF_MESSAGE,
    Code.SEND_REPLY_MESSAGE,
    Code.SEND_REPLY_MESSAGE_V2,
    Code.RECALL_MESSAGE,
}


class Ground(NamedTuple):
    """A broker with messages, two of them half, and the disk under it."""

    broker: Broker
    caller: Caller
    disk: SlowDisk
    halves: tuple[Half, Half]
    now_ms: int


@asynccontextmanager
async def started(tmp_path: pathlib.Path, **settings: str) -> AsyncGenerator[Ground]:
    """Start the broker."""
    disk, clock = SlowDisk(), ManualClock()
    named = {"storePathRootDir": str(tmp_path / "store"), "listenPort": "0", "brokerName": "broker-a"}
    named |= {"bindAddress": "127.0.0.1", "recallMessageEnable": "true", "enablePropertyFilter": "true", **settings}
    async with Broker(BrokerConfig.from_java(named), clock, disk) as broker, open_caller(broker.address) as caller:
        await samples.prepare_broker(caller)
        halves = await send_half(caller), await send_half(caller)
        yield Ground(broker, caller, disk, halves, clock.now_ms())
        disk.has_room = True


def requests(ground: Ground) -> dict[str, tuple[int, Any, bytes]]:
    """Return a good request for each code, and both ends of a transaction."""
    asked: dict[str, tuple[int, Any, bytes]] = {
        Code(sample.code).name: (sample.code, sample.fields, encode_body(sample.body)) for sample in samples.BROKER
    }
    committed, rolled_back = ground.halves
    host = encode_host("127.0.0.1", 10_911)
    half_id = format_offset_id(host, committed.log_offset)
    asked["RESUME_CHECK_HALF_MESSAGE"] = (Code.RESUME_CHECK_HALF_MESSAGE, {"topic": "T", "msgId": half_id}, b"")
    asked["END_TRANSACTION"] = (Code.END_TRANSACTION, committed.end(8), b"")
    handle = format_recall_handle(RecallHandle("T", "broker-a", str(ground.now_ms + 90_000), "key"))
    asked["RECALL_MESSAGE"] = (Code.RECALL_MESSAGE, {"topic": "T", "recallHandle": handle}, b"")
    asked["rollback"] = (Code.END_TRANSACTION, rolled_back.end(12), b"")
    asked["to a new topic"] = (Code.SEND_MESSAGE_V2, send_header("New"), b"body")
    asked["delayed"] = (Code.SEND_MESSAGE_V2, send_header("T", properties="DELAY\x013\x02"), b"body")
    asked["timed"] = (Code.SEND_MESSAGE_V2, send_header("T", properties="TIMER_DELAY_SEC\x0190\x02"), b"body")
    asked["half"] = (Code.SEND_MESSAGE_V2, send_header("T", properties="TRAN_MSG\x01true\x02PGROUP\x01p\x02"), b"body")
    return asked


def watch_appends(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which each record that the store plans adds a line."""
    planned: list[str] = []
    store = ground.broker.store
    for name in ("append", "append_batch"):
        real = getattr(store, name)

        def note(*arguments: Any, real: Any = real) -> Any:
            placed = real(*arguments)
            planned.append(str(placed))
            return placed

        monkeypatch.setattr(store, name, note)
    return planned


async def test_nothing_succeeds_that_was_not_written(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the disk is full, each request that plans a record is answered with a failure; so is a rollback."""
    async with started(tmp_path) as ground:
        planned, storing = watch_appends(ground, monkeypatch), set[int]()
        ground.disk.has_room = False
        for name, (code, header, body) in requests(ground).items():
            before = len(planned)
            answer = await ground.caller.ask(code, header, body)
            if len(planned) > before:
                storing.add(code)
                assert answer.code != ResponseCode.SUCCESS, f"{name}: {answer}"
                assert ground.broker.store.log_append_offset == ground.broker.store.log_max_offset, name
        assert storing == STORING


async def test_nothing_succeeds_that_is_not_on_disk(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the flush fails under SYNC_FLUSH, who waits for the disk is answered with a failure."""
    waits = STORING - {Code.CONSUMER_SEND_MSG_BACK, Code.RESUME_CHECK_HALF_MESSAGE}
    waits -= {Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2}  # they say "not stored" by their message id
    for code in sorted(waits):
        async with started(tmp_path / str(code), flushDiskType="SYNC_FLUSH") as ground:
            planned = watch_appends(ground, monkeypatch)
            _, header, body = requests(ground)[Code(code).name]
            ground.disk.go_on(failing=True)
            answer = await ground.caller.ask(code, header, body)
            assert planned, Code(code).name
            assert answer.code != ResponseCode.SUCCESS, f"{Code(code).name}: {answer}"
