"""What members are asked for administrators, by raw requests to a broker whose clock the test moves."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from raw_calls import Caller, open_caller

from rocketlet.broker.server import Broker
from rocketlet.common.codes import ResponseCode
from rocketlet.common.errors import ConnectionClosedError
from rocketlet.common.message import MessageQueue
from rocketlet.common.outcome import Outcome
from rocketlet.common.record import decode_record
from rocketlet.common.record_messages import decode_message
from rocketlet.remoting.bodies.body import decode_answer, encode_body
from rocketlet.remoting.bodies.client import ConsumerOffsets
from rocketlet.remoting.codec.command import SLOW_BYTES, Command, decode_header
from rocketlet.remoting.codec.request_codes import RequestCode as Code
from rocketlet.remoting.headers.send import SendReply
from rocketlet.remoting.transport.client import ConnectionPool
from rocketlet.remoting.transport.connection import Connection, Reply, RequestHandlers
from rocketlet.testing.manual_clock import ManualClock

CALL_LIMIT_MS = 10_000
STATUS_LIMIT_MS = 5_000
MOST_OFFSET_BYTES = 1 << 20

RUNNING_INFO = {"consumerGroup": "g", "clientId": "c", "jstackEnable": "true"}
STATUS = {"topic": "T", "group": "g"}
OFFSETS = {MessageQueue("T", "broker-a", 0): 5, MessageQueue("T", "broker-a", 1): 7}


@asynccontextmanager
async def joined(broker: Broker, client_id: str, reply: Reply) -> AsyncGenerator[Caller]:
    """Return a member of g that answers everything with the same; an outcome that is owed is no answer at all."""
    requests: asyncio.Queue[Command] = asyncio.Queue()

    def answer(command: Command, _connection: Connection) -> Reply:
        requests.put_nowait(command)
        return None if command.is_oneway else reply

    async with ConnectionPool(ManualClock(), RequestHandlers(fallback=answer)) as pool:
        caller = Caller(await pool.connect(broker.address), requests)
        await caller.heartbeat(client_id, "g", {"T": "*"})
        assert (await caller.next_request()).code == Code.NOTIFY_CONSUMER_IDS_CHANGED
        yield caller


@pytest.fixture
async def member(broker: Broker) -> AsyncGenerator[Caller]:
    """Return a member of g that is asked and does not answer."""
    async with joined(broker, "c", Outcome[Command]()) as opened:
        yield opened


def told(offsets: Mapping[MessageQueue, int]) -> Command:
    """Return a member's answer about its offsets."""
    return Command.response(ResponseCode.SUCCESS, body=encode_body(ConsumerOffsets(message_queue_table=dict(offsets))))


# --- 307


@pytest.mark.feature("D7")
async def test_answer_of_a_member_comes_back_as_it_is(broker: Broker, caller: Caller) -> None:
    """Code, remark, fields and body, whatever they are; the body is no JSON of ours."""
    body = b'{"mqTable":{{"$ref":"$.mqPopTable.null"}:{}}}'
    reply = Command.response(ResponseCode.NO_PERMISSION, "not to you", {"some": "field"}, body)
    async with joined(broker, "c", reply):
        answer = await caller.ask(Code.GET_CONSUMER_RUNNING_INFO, RUNNING_INFO)
    assert (answer.code, answer.remark, answer.body) == (ResponseCode.NO_PERMISSION, "not to you", body)
    assert answer.ext == {"some": "field"}


@pytest.mark.feature("D7")
async def test_member_is_asked_what_the_broker_was_asked(caller: Caller, member: Caller) -> None:
    """With every field, known or not; other members are not asked."""
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(
            caller.ask(Code.GET_CONSUMER_RUNNING_INFO, {**RUNNING_INFO, "unheardOf": "x"}, b"body")
        )
        question = await member.next_request()
        assert (question.code, question.ext, question.body) == (
            Code.GET_CONSUMER_RUNNING_INFO,
            {**RUNNING_INFO, "unheardOf": "x"},
            b"body",
        )
        member.connection.abort()
        assert (await asking).remark is not None


@pytest.mark.parametrize(
    ("fields", "remark"),
    [
        ({"consumerGroup": "nobody"}, "The Consumer <nobody> <c> not online"),
        ({"clientId": "other"}, "The Consumer <g> <other> not online"),
    ],
)
async def test_member_that_is_not_there(caller: Caller, member: Caller, fields: dict[str, str], remark: str) -> None:
    """An unknown group, and a client that is not in the group, are answered at once."""
    answer = await caller.ask(Code.GET_CONSUMER_RUNNING_INFO, RUNNING_INFO | fields)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
    assert member.requests.empty()


async def test_member_that_is_silent(caller: Caller, member: Caller, clock: ManualClock) -> None:
    """It has ten seconds; then the answer is 207, and what it says later is of no use."""
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(caller.ask(Code.GET_CONSUMER_RUNNING_INFO, RUNNING_INFO))
        await member.next_request()
        await clock.elapse(CALL_LIMIT_MS - 1)
        assert not asking.done()
        await clock.elapse(1)
        answer = await asking
    assert answer.code == ResponseCode.CONSUME_MSG_TIMEOUT
    assert (answer.remark or "").startswith("consumer <g> <c> Timeout: ")


async def test_member_that_leaves_while_it_is_asked(caller: Caller, member: Caller) -> None:
    """Whoever asked learns of it at once."""
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(caller.ask(Code.GET_CONSUMER_RUNNING_INFO, RUNNING_INFO))
        await member.next_request()
        member.connection.abort()
        answer = await asking
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert (answer.remark or "").startswith("invoke consumer <g> <c> Exception: ")


async def test_who_asked_leaves(broker: Broker, caller: Caller, member: Caller, clock: ManualClock) -> None:
    """Nothing is left of the question then, and the member's connection goes on."""
    async with open_caller(broker.address) as other, asyncio.TaskGroup() as tasks:

        async def ask() -> None:
            with pytest.raises(ConnectionClosedError):
                await other.ask(Code.GET_CONSUMER_RUNNING_INFO, RUNNING_INFO)

        tasks.create_task(ask())
        await member.next_request()
        other.connection.abort()
    await clock.elapse(2 * CALL_LIMIT_MS)
    assert (await member.ask(Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"})).code == ResponseCode.SUCCESS
    assert (await caller.ask(Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"})).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("version", "name"), [(0, "V3_0_0_SNAPSHOT"), (28, "V3_0_7_SNAPSHOT"), (61, "V3_1_7"), (-1, "V3_0_0_SNAPSHOT")]
)
async def test_member_that_is_too_old(broker: Broker, caller: Caller, version: int, name: str) -> None:
    """It is not asked, and the answer says which release it has."""
    async with open_caller(broker.address) as old:
        body = b'{"clientID":"c","consumerDataSet":[{"groupName":"g"}]}'
        await old.ask(Code.HEART_BEAT, None, body, version=version)
        assert (await old.next_request()).code == Code.NOTIFY_CONSUMER_IDS_CHANGED
        answer = await caller.ask(Code.GET_CONSUMER_RUNNING_INFO, RUNNING_INFO)
        assert old.requests.empty()
    remark = f"The Consumer <c> Version <{name}> too low to finish, please upgrade it to V3_1_8_SNAPSHOT"
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)


# --- 309


async def store_message(caller: Caller) -> str:
    """Store a message in T; return its offset id."""
    sent = await caller.send("T", b"once more", properties="KEYS\x01k\x02")
    return decode_header(SendReply, sent).msg_id


@pytest.mark.feature("D21")
async def test_member_gets_the_stored_message(caller: Caller, member: Caller) -> None:
    """It is the body of the question, which names the broker and the flags of topic and group."""
    fields = {"consumerGroup": "g", "clientId": "c", "msgId": await store_message(caller), "topic": "T"}
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(caller.ask(Code.CONSUME_MESSAGE_DIRECTLY, fields))
        question = await member.next_request()
        message = decode_message(decode_record(question.body), "broker-a")
        assert (message.body, message.topic, message.keys) == (b"once more", "T", ("k",))
        flags = {"brokerName": "broker-a", "topicSysFlag": "0", "groupSysFlag": "0"}
        assert question.ext == fields | flags
        member.connection.abort()
        assert (await asking).code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize(
    ("fields", "remark"),
    [
        ({"clientId": "other"}, "The Consumer <g> <other> not online"),
        ({"msgId": "7F00000100002A9F0000000040000000"}, "can not find message by the offset, 1073741824"),
        ({"msgId": "no id"}, "the custom field <msgId> is no id"),
    ],
)
async def test_message_that_nobody_gets(caller: Caller, member: Caller, fields: dict[str, str], remark: str) -> None:
    """A member that is not there, a message that is not, an id that is none: each has its remark."""
    about = {"consumerGroup": "g", "clientId": "c", "msgId": await store_message(caller), "topic": "T"}
    answer = await caller.ask(Code.CONSUME_MESSAGE_DIRECTLY, about | fields)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert (answer.remark or "").startswith(remark)
    assert member.requests.empty()


# --- 223


async def status(caller: Caller, **fields: str) -> dict[str, dict[MessageQueue, int]]:
    """Return what members tell of their offsets."""
    answer = await caller.ask(Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, STATUS | fields)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return decode_answer(ConsumerOffsets, answer.body).consumer_table


@pytest.mark.feature("D4")
async def test_offsets_of_members(broker: Broker, caller: Caller) -> None:
    """Each tells its own; one alone is asked when it is named, and one that is not there tells nothing."""
    async with joined(broker, "one", told(OFFSETS)), joined(broker, "two", told({})):
        assert await status(caller) == {"one": OFFSETS, "two": {}}
        assert await status(caller, clientAddr=" ") == {"one": OFFSETS, "two": {}}
        assert await status(caller, clientAddr="one") == {"one": OFFSETS}
        assert await status(caller, clientAddr="three") == {}


async def test_members_that_do_not_tell(broker: Broker, caller: Caller, clock: ManualClock) -> None:
    """One that refuses, one that talks nonsense, one that tells too much and one that is silent leave the others in."""
    refusal = Command.response(ResponseCode.SYSTEM_ERROR, "no")
    nonsense = Command.response(ResponseCode.SUCCESS, body=b"{{{")
    endless = told_at_length(MOST_OFFSET_BYTES + 1)
    async with (
        joined(broker, "one", told(OFFSETS)),
        joined(broker, "two", refusal),
        joined(broker, "three", nonsense),
        joined(broker, "four", endless),
        joined(broker, "five", Outcome[Command]()) as silent,
        asyncio.TaskGroup() as tasks,
    ):
        asking = tasks.create_task(status(caller))
        question = await silent.next_request()
        assert question.code == Code.GET_CONSUMER_STATUS_FROM_CLIENT
        assert question.ext == STATUS
        await clock.elapse(STATUS_LIMIT_MS)
        assert await asking == {"one": OFFSETS}


def told_at_length(length: int) -> Command:
    """Return an answer of so many bytes about one queue."""
    short = len(told({MessageQueue("", "broker-a", 0): 5}).body)
    return told({MessageQueue("x" * (length - short), "broker-a", 0): 5})


async def test_offsets_of_all_members_are_bounded(broker: Broker, caller: Caller) -> None:
    """One member tells a megabyte at most, and all together four."""
    longest = told_at_length(MOST_OFFSET_BYTES)
    assert len(longest.body) == MOST_OFFSET_BYTES
    async with AsyncExitStack() as stack:
        for number in range(5):
            await stack.enter_async_context(joined(broker, f"client-{number}", longest))
        answer = await caller.ask(Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, STATUS)
    assert (answer.code, answer.body.count(b"client-")) == (ResponseCode.SUCCESS, 4)
    assert len(answer.body) > 4 * (MOST_OFFSET_BYTES - 200)


@pytest.mark.parametrize(("length", "count"), [(SLOW_BYTES // 2, 2), (SLOW_BYTES // 2 + 1, 1), (SLOW_BYTES + 1, 0)])
async def test_other_offsets_than_of_java_are_bounded_together(
    length: int, count: int, broker: Broker, caller: Caller
) -> None:
    """Who writes them otherwise takes long to read: so much of all members is; what Java writes does not count."""
    many = {MessageQueue("T", "broker-a", number): number for number in range(SLOW_BYTES // 50)}
    java, other = told(many), told(OFFSETS)
    other.body = other.body.replace(b'"queueId":', b'"queueId": ')
    other.body += b" " * (length - len(other.body))
    assert len(java.body) > SLOW_BYTES
    async with (
        joined(broker, "java", java),
        joined(broker, "a", other),
        joined(broker, "b", other),
        joined(broker, "c", other),
        joined(broker, "more java", java),
    ):
        found = await status(caller)
    assert (found.pop("java"), found.pop("more java")) == (many, many)
    assert list(found.values()) == [OFFSETS] * count


async def test_offsets_of_a_group_without_members(caller: Caller) -> None:
    """There is nobody to ask."""
    answer = await caller.ask(Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, STATUS)
    remark = "No Any Consumer online in the consumer group: [g]"
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)


async def test_offsets_of_a_member_that_is_too_old(broker: Broker, caller: Caller) -> None:
    """Clients before 3.0.7 do not know the question."""
    async with open_caller(broker.address) as old:
        await old.ask(Code.HEART_BEAT, None, b'{"clientID":"c","consumerDataSet":[{"groupName":"g"}]}', version=27)
        answer = await caller.ask(Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, STATUS)
    remark = "the client does not support this feature. version=V3_0_6"
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
