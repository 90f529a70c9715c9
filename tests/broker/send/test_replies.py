"""Replies to requests, by raw connections to a broker whose clock the test moves."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from raw_calls import TIMEOUT_MS, Caller, open_caller, send_header, until
from slow_disk import SlowDisk

from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.codes import ResponseCode
from rocketlet.common.message import COMPRESSED, TRANSACTION_PREPARED
from rocketlet.common.outcome import Outcome
from rocketlet.common.properties import parse_properties
from rocketlet.common.record import Record, iter_records
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.headers.send import SendHeader
from rocketlet.remoting.transport.client import ConnectionPool
from rocketlet.remoting.transport.connection import Connection, RequestHandlers
from rocketlet.remoting.transport.event_loop import LoopClock
from rocketlet.testing.manual_clock import ManualClock

TOPIC = "cluster-a_REPLY_TOPIC"
ANSWERED = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
NOT_STORED = {**ANSWERED, "msgId": "0", "queueId": "0", "queueOffset": "0"}


class Requester:
    """A producer that waits for replies; ``owed`` are the pushes that it has not answered."""

    def __init__(self, caller: Caller, owed: asyncio.Queue[Outcome[Command]]) -> None:
        self.caller = caller
        self.owed = owed

    async def next(self) -> Outcome[Command]:
        """Return the next push."""
        async with LoopClock().timeout(TIMEOUT_MS):
            return await self.owed.get()

    async def take(self, code: int = ResponseCode.SUCCESS) -> Command:
        """Answer the next push and return it."""
        owed = await self.next()
        owed.answer_with(Command.response(code, "no"))
        return owed.request


@asynccontextmanager
async def open_requester(address: str, client_id: str = "asker@1", group: str = "askers") -> AsyncGenerator[Requester]:
    """Connect a producer."""
    owed: asyncio.Queue[Outcome[Command]] = asyncio.Queue()

    def owe(command: Command, _connection: Connection) -> Outcome[Command]:
        later = Outcome[Command]()
        owed.put_nowait(later)
        return later

    async with ConnectionPool(LoopClock(), RequestHandlers(fallback=owe)) as pool:
        caller = Caller(await pool.connect(address), asyncio.Queue())
        data = {"clientID": client_id, "consumerDataSet": [], "producerDataSet": [{"groupName": group}]}
        answer = await caller.ask(RequestCode.HEART_BEAT, None, json.dumps(data).encode())
        assert answer.code == ResponseCode.SUCCESS
        yield Requester(caller, owed)


@pytest.fixture
async def requester(broker: Broker) -> AsyncGenerator[Requester]:
    """Return a producer that waits for replies."""
    async with open_requester(broker.address) as opened:
        yield opened


def reply_header(to: str | None = "asker@1", more: str = "", topic: str = TOPIC, **fields: Any) -> Any:
    """Return the header of a reply."""
    properties = "CORRELATION_ID\x01c-1\x02MSG_TYPE\x01reply\x02TTL\x013000\x02" + more
    if to is not None:
        properties += f"REPLY_TO_CLIENT\x01{to}\x02"
    return send_header(topic, properties=properties, **fields)


async def reply(caller: Caller, to: str | None = "asker@1", body: bytes = b"answer", **fields: Any) -> Command:
    """Send a reply and return what it is answered."""
    return await caller.ask(RequestCode.SEND_REPLY_MESSAGE_V2, reply_header(to, **fields), body)


async def records(caller: Caller, topic: str = TOPIC) -> list[Record]:
    """Return what queue 0 of a topic holds."""
    answer = await caller.pull(topic)
    return list(iter_records(answer.body)) if answer.code == ResponseCode.SUCCESS else []


def begin(group: asyncio.TaskGroup, caller: Caller, **fields: Any) -> asyncio.Task[Command]:
    """Send a reply whose answer is to wait."""
    return group.create_task(reply(caller, **fields))


def is_waiting(broker: Broker) -> bool:
    """Tell whether the broker waits for the answer of a client."""
    return any("waits for 0>" not in repr(connection) for connection in broker.clients)


@pytest.mark.feature("Q1")
async def test_reply_reaches_its_requester(caller: Caller, requester: Requester, clock: ManualClock) -> None:
    """The requester gets body and header as they were sent, with PUSH_REPLY_TIME; then the sender is answered 0."""
    async with asyncio.TaskGroup() as group:
        answering = begin(group, caller, flag=7, reconsume_times=3, unit_mode=True, queue_id=-1)
        push = await requester.take()
    assert (push.code, push.body) == (RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, b"answer")
    host, port = requester.caller.connection.remote_address
    sent_from = caller.connection.local_address
    told = dict(push.ext)
    properties = parse_properties(told.pop("properties"))
    assert told == {
        "producerGroup": "producers",
        "topic": TOPIC,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "-1",
        "sysFlag": "0",
        "bornTimestamp": "1700000000000",
        "flag": "7",
        "reconsumeTimes": "3",
        "unitMode": "true",
        "bornHost": f"{sent_from[0]}:{sent_from[1]}",
        "storeHost": f"{host}:{port}",
        "storeTimestamp": str(clock.now_ms()),
    }
    sent = {"CORRELATION_ID": "c-1", "MSG_TYPE": "reply", "TTL": "3000", "REPLY_TO_CLIENT": "asker@1"}
    assert properties == {**sent, **ANSWERED, "PUSH_REPLY_TIME": str(clock.now_ms())}
    answer = answering.result()
    assert (answer.code, answer.remark, answer.ext["queueId"]) == (ResponseCode.SUCCESS, None, "0")
    (stored,) = await records(caller)
    assert (bytes(stored.body), stored.properties) == (b"answer", {**sent, **ANSWERED})
    assert (stored.flag, stored.reconsume_times) == (7, 3)
    assert answer.ext["msgId"].endswith(f"{stored.log_offset:016X}")


@pytest.mark.feature("Q1")
async def test_long_header_names(caller: Caller, requester: Requester) -> None:
    """SEND_REPLY_MESSAGE(324) has the long names, as the Go client sends them."""
    letters = reply_header()
    names = SendHeader(**{name: getattr(letters, name) for name in SendHeader.__struct_fields__})
    async with asyncio.TaskGroup() as group:
        answering = group.create_task(caller.ask(RequestCode.SEND_REPLY_MESSAGE, names, b"answer"))
        assert (await requester.take()).body == b"answer"
    assert answering.result().code == ResponseCode.SUCCESS


@pytest.mark.feature("Q2")
@pytest.mark.parametrize(
    ("to", "remark"),
    [
        ("nobody", "push reply message fail, channel of <nobody> not found."),
        (None, "reply message properties[REPLY_TO_CLIENT] is null"),
        ("", "reply message properties[REPLY_TO_CLIENT] is null"),
    ],
)
@pytest.mark.parametrize("stores", ["true", "false"])
async def test_reply_to_nobody(
    stores: str, to: str | None, remark: str, settings: dict[str, str], clock: ManualClock
) -> None:
    """It is answered 1 at once, with the place of the reply if replies are stored."""
    config = BrokerConfig.from_java({**settings, "storeReplyMessageEnable": stores})
    async with Broker(config, clock) as broker, open_caller(broker.address) as caller:
        answer = await reply(caller, to)
        stored = await records(caller)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
    assert answer.ext.keys() - ANSWERED.keys() == ({"msgId", "queueId", "queueOffset"} if stores == "true" else set())
    assert [record.properties.get("PUSH_REPLY_TIME") for record in stored] == [None] * (stores == "true")


@pytest.mark.feature("Q2")
async def test_requester_that_refuses(caller: Caller, requester: Requester, caplog: pytest.LogCaptureFixture) -> None:
    """A requester that answers another code than 0 did not take the reply, and the reply is stored nevertheless."""
    caplog.set_level(logging.INFO, "rocketlet.broker.send.handlers")
    async with asyncio.TaskGroup() as group:
        answering = begin(group, caller)
        await requester.take(ResponseCode.SYSTEM_ERROR)
    answer = answering.result()
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "push reply message to asker@1fail.")
    assert "pushing a reply to client asker@1 at 127.0.0.1:" in caplog.text
    assert len(await records(caller)) == 1


@pytest.mark.feature("Q2")
async def test_requester_that_goes_while_it_is_waited_for(caller: Caller, requester: Requester) -> None:
    """When its connection ends before its answer, the sender of the reply is answered 1 without further waiting."""
    async with asyncio.TaskGroup() as group:
        answering = begin(group, caller)
        await requester.next()
        requester.caller.connection.abort()
    answer = answering.result()
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "push reply message to asker@1fail.")
    again = await reply(caller)
    assert again.remark == "push reply message fail, channel of <asker@1> not found."


@pytest.mark.feature("Q2")
async def test_requester_that_says_nothing(caller: Caller, requester: Requester, clock: ManualClock) -> None:
    """A millisecond before ten seconds there is no answer; then it is 1."""
    async with asyncio.TaskGroup() as group:
        answering = begin(group, caller)
        await requester.next()
        clock.advance(9_999)
        await caller.pull(TOPIC)
        assert not answering.done()
        clock.advance(1)
    assert (answering.result().code, answering.result().remark) == (1, "push reply message to asker@1fail.")


@pytest.mark.feature("Q1")
async def test_reply_goes_to_the_latest_connection(broker: Broker, caller: Caller, requester: Requester) -> None:
    """A client that has connected anew gets its replies there, and the old connection is in nobody's way."""
    async with open_requester(broker.address) as anew, asyncio.TaskGroup() as group:
        answering = begin(group, caller)
        await anew.take()
        requester.caller.connection.abort()
        await until(lambda: len(broker.clients) == 1)
        again = begin(group, caller)
        await anew.take()
    assert (answering.result().code, again.result().code) == (ResponseCode.SUCCESS, ResponseCode.SUCCESS)


@pytest.mark.feature("Q1")
async def test_nobody_else_waits(caller: Caller, requester: Requester, broker: Broker) -> None:
    """While a requester takes its time, sends and replies to others on the same connection are answered."""
    async with open_requester(broker.address, "other@1") as other, asyncio.TaskGroup() as group:
        slow = begin(group, caller)
        owed = await requester.next()
        quick = begin(group, caller, to="other@1")
        await other.take()
        assert (await quick).code == (await caller.send()).code == ResponseCode.SUCCESS
        assert not slow.done()
        owed.answer_with(Command.response(ResponseCode.SUCCESS))
    assert slow.result().code == ResponseCode.SUCCESS


async def test_sender_that_goes_ends_the_waiting(caller: Caller, requester: Requester, broker: Broker) -> None:
    """When the sender's connection ends nothing waits for the requester any more; the reply is stored."""
    async with open_caller(broker.address) as sender:
        sending = asyncio.ensure_future(reply(sender))  # noqa: TID251 # it ends with its connection, below
        await requester.next()
        assert is_waiting(broker)
        sender.connection.abort()
        await asyncio.wait([sending])
        assert sending.exception() is not None
    await until(lambda: not is_waiting(broker))
    assert len(await records(caller)) == 1


async def test_oneway_reply_does_not_wait(caller: Caller, requester: Requester, broker: Broker) -> None:
    """For a sender that wants no answer the requester gets a one-way push, and nobody waits for it."""
    caller.ask_oneway(RequestCode.SEND_REPLY_MESSAGE_V2, reply_header(), b"answer")
    push = (await requester.next()).request
    assert (push.is_oneway, push.body, is_waiting(broker)) == (True, b"answer", False)
    caller.ask_oneway(RequestCode.SEND_REPLY_MESSAGE_V2, reply_header("nobody"), b"answer")
    await records(caller)  # the next read; the one-way request has been served before
    assert len(await records(caller)) == 2


async def test_oneway_reply_to_nobody_is_no_error(caller: Caller, caplog: pytest.LogCaptureFixture) -> None:
    """It is stored, and that is all."""
    with caplog.at_level(logging.WARNING):
        caller.ask_oneway(RequestCode.SEND_REPLY_MESSAGE_V2, reply_header("nobody"), b"answer")
        await records(caller)  # the next read; the one-way request has been served before
        assert len(await records(caller)) == 1
    assert caplog.text == ""


async def test_replies_are_not_stored(settings: dict[str, str], clock: ManualClock) -> None:
    """With storeReplyMessageEnable=false the message id is "0", and the topic stays empty."""
    settings["storeReplyMessageEnable"] = "false"
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        async with open_requester(broker.address) as requester, asyncio.TaskGroup() as group:
            answering = begin(group, caller)
            await requester.take()
        assert (answering.result().code, answering.result().ext) == (ResponseCode.SUCCESS, NOT_STORED)
        assert await records(caller) == []


async def test_reply_that_cannot_be_stored_is_passed_on(
    caller: Caller, requester: Requester, caplog: pytest.LogCaptureFixture
) -> None:
    """Properties that are too long for a record reach the requester; the answer is 0, the message id "0".

    The log names its sender.
    """
    caplog.set_level(logging.INFO, "rocketlet.broker.send.replies")
    async with asyncio.TaskGroup() as group:
        answering = begin(group, caller, more=f"long\x01{'x' * 33_000}\x02")
        push = await requester.take()
    assert parse_properties(push.ext["properties"])["long"] == "x" * 33_000
    assert (answering.result().code, answering.result().ext) == (ResponseCode.SUCCESS, NOT_STORED)
    assert await records(caller) == []
    assert "not storing the reply of 127.0.0.1:" in caplog.text


async def test_full_disk(settings: dict[str, str], clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    """A reply that the disk did not take has reached its requester, and is answered like a send; the log says whose."""
    disk = SlowDisk()
    async with Broker(BrokerConfig.from_java(settings), clock, disk) as broker, open_caller(broker.address) as caller:
        await caller.send(TOPIC)
        async with open_requester(broker.address) as requester:
            disk.has_room = False
            answer = await reply(caller)
            assert (await requester.take()).body == b"answer"
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "rejecting the reply of 127.0.0.1:" in caplog.text
        disk.has_room = True


@pytest.mark.parametrize("ending", ["flushed", "failed", "late"])
async def test_sync_flush(ending: str, settings: dict[str, str], clock: ManualClock) -> None:
    """The answer waits for the disk too; if that fails the message id is "0", if it is late nothing differs."""
    disk = SlowDisk()
    config = BrokerConfig.from_java({**settings, "flushDiskType": "SYNC_FLUSH"})
    async with Broker(config, clock, disk) as broker, open_caller(broker.address) as caller:
        async with open_requester(broker.address) as requester, asyncio.TaskGroup() as group:
            disk.get_stuck()
            answering = begin(group, caller)
            await requester.take()
            await until(disk.waiting.is_set)
            await caller.pull(TOPIC)
            assert not answering.done()
            if ending == "late":
                clock.advance(5_000)
                await answering
            disk.go_on(failing=ending == "failed")
        disk.go_on(failing=ending == "failed")
    assert answering.result().code == ResponseCode.SUCCESS
    assert (answering.result().ext == NOT_STORED) == (ending == "failed")


async def test_delayed_reply_is_parked(caller: Caller, requester: Requester, broker: Broker) -> None:
    """A delay level counts for the stored reply alone: the requester gets it now."""
    async with asyncio.TaskGroup() as group:
        begin(group, caller, more="DELAY\x0199\x02")
        await requester.take()
    assert await records(caller) == []
    entries = broker.store.entries("SCHEDULE_TOPIC_XXXX", 17, 0, 9)
    assert len(entries) == 1


async def test_malformed_delay_is_not_stored(caller: Caller, requester: Requester) -> None:
    """A delay level that is no number is answered 1, and nothing is stored or passed on."""
    answer = await reply(caller, more="DELAY\x01soon\x02")
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "property DELAY is 'soon', which is no number")
    assert (await records(caller), requester.owed.empty()) == ([], True)


async def test_stored_reply_says_that_it_is_compressed(caller: Caller, requester: Requester) -> None:
    """Of the flags that the sender has set the record keeps those that are needed to read its body."""
    async with asyncio.TaskGroup() as group:
        begin(group, caller, sys_flag=COMPRESSED | TRANSACTION_PREPARED)
        push = await requester.take()
    assert push.ext["sysFlag"] == str(COMPRESSED | TRANSACTION_PREPARED)
    assert [record.sys_flag for record in await records(caller)] == [COMPRESSED]


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"queue_id": 9}, ResponseCode.INVALID_PARAMETER, "request queueId[9] is illegal"),
        ({"topic": "T", "default_topic": "none"}, ResponseCode.TOPIC_NOT_EXIST, "topic[T] not exist, apply first"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, ResponseCode.NO_PERMISSION, "is forbidden."),
        ({"topic": "a b"}, ResponseCode.INVALID_PARAMETER, "contains illegal characters"),
        ({"body": b""}, ResponseCode.MESSAGE_ILLEGAL, "no body"),
    ],
)
async def test_reply_that_is_refused(
    fields: dict[str, Any], code: int, words: str, caller: Caller, requester: Requester
) -> None:
    """What a send is refused for is neither passed on nor stored."""
    answer = await reply(caller, **fields)
    assert (answer.code, answer.ext, words in (answer.remark or "")) == (code, ANSWERED, True)
    assert (await records(caller), requester.owed.empty()) == ([], True)


async def test_reply_may_create_its_topic(caller: Caller, requester: Requester) -> None:
    """A topic that is not there is made as by a send; that of a group's retries is not redirected."""
    for topic in ("New", "%RETRY%group"):
        async with asyncio.TaskGroup() as group:
            answering = begin(group, caller, topic=topic, reconsume_times=99)
            await requester.take()
        assert answering.result().code == ResponseCode.SUCCESS
        assert len(await records(caller, topic)) == 1


async def test_many_replies_at_a_time(caller: Caller, broker: Broker) -> None:
    """A hundred requesters, each of whom gets its own reply and no other."""
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        opened = [open_requester(broker.address, f"asker@{number}") for number in range(100)]
        requesters = [await stack.enter_async_context(each) for each in opened]
        answering = [begin(group, caller, to=f"asker@{number}", body=b"%d" % number) for number in reversed(range(100))]
        assert [(await each.take()).body for each in requesters] == [b"%d" % number for number in range(100)]
    assert {each.result().code for each in answering} == {ResponseCode.SUCCESS}


async def test_stop_with_a_reply_on_its_way(settings: dict[str, str], clock: ManualClock) -> None:
    """A broker stops at once while a requester is being waited for, and leaves no task, timer or connection."""
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(Broker(BrokerConfig.from_java(settings), clock))
        requester = await stack.enter_async_context(open_requester(broker.address))
        caller = await stack.enter_async_context(open_caller(broker.address))
        sending = asyncio.ensure_future(reply(caller))  # noqa: TID251 # it ends with its connection, below
        await requester.next()
        await broker.__aexit__(None, None, None)
        await asyncio.wait([sending])
        assert sending.exception() is not None
