"""What administrators ask of clients of the port, and how they are answered."""

import asyncio
from collections.abc import Mapping

import pytest
from grpc_calls import METADATA, LocalPort, commands, make_call
from probe_calls import ProbeCall
from raw_calls import Caller, until

from rocketlet.broker.admin.guests import CALL_LIMIT_MS
from rocketlet.broker.server import Broker
from rocketlet.common.codes import ResponseCode
from rocketlet.proxy.messages import v2
from rocketlet.proxy.messages.enums import ClientType, Code
from rocketlet.proxy.rpc.call import RequestStream
from rocketlet.proxy.services.telemetry import MOST_COMMAND_BYTES
from rocketlet.remoting.bodies.body import decode_answer
from rocketlet.remoting.bodies.client import ConsumedDirectly, DirectResult, RunningInfo
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.testing.manual_clock import ManualClock

WHOM = {"consumerGroup": "g", "clientId": METADATA["x-mq-client-id"]}
STACKS = {**WHOM, "jstackEnable": "true"}


class Member:
    """A consumer of g over the port, whose stream a test answers on."""

    def __init__(self, broker: Broker, metadata: Mapping[str, str] = METADATA) -> None:
        self.port = LocalPort(broker)
        self.call: ProbeCall = make_call(metadata)
        self.stream: RequestStream = self.port.telemetry(self.call)
        entry = v2.SubscriptionEntry(topic=v2.Resource(name="T"), expression=v2.FilterExpression(expression="a"))
        subscription = v2.Subscription(group=v2.Resource(name="g"), subscriptions=[entry])
        settings = v2.Settings(client_type=ClientType.PUSH_CONSUMER, subscription=subscription)
        self.say(v2.TelemetryCommand(settings=settings))

    def say(self, command: v2.TelemetryCommand, code: Code = Code.OK) -> None:
        """Say something, with a status."""
        command.status.code = code
        self.stream.received(command.SerializeToString())

    def asked(self) -> v2.TelemetryCommand:
        """Return what it was told last."""
        return commands(self.call)[-1]


@pytest.fixture
def member(broker: Broker) -> Member:
    """Return a consumer of g over the port."""
    return Member(broker)


async def stored(broker: Broker, caller: Caller) -> dict[str, str]:
    """Store a message; return which is to be consumed, and by whom."""
    answer = await caller.send("T", b"body", properties="UNIQ_KEY\x01U1\x02TAGS\x01a\x02")
    assert answer.code == ResponseCode.SUCCESS
    assert answer.ext is not None
    return {**WHOM, "topic": "T", "msgId": answer.ext["msgId"]}


@pytest.mark.feature("D7", "G21")
async def test_stacks_of_a_client(member: Member, caller: Caller) -> None:
    """The client is asked where its threads are; the rest is what the broker knows of it."""
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(caller.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, STACKS))
        await until(lambda: member.asked().HasField("print_thread_stack_trace_command"))
        nonce = member.asked().print_thread_stack_trace_command.nonce
        trace = v2.ThreadStackTrace(nonce=nonce, thread_stack_trace="x" * (MOST_COMMAND_BYTES + 1))
        member.say(v2.TelemetryCommand(thread_stack_trace=trace))
        answer = await asking
    info = decode_answer(RunningInfo, answer.body)
    assert info.jstack == trace.thread_stack_trace
    assert [each.topic for each in info.subscription_set] == ["T"]
    assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert info.properties["PROP_CLIENT_VERSION"] == METADATA["x-mq-client-version"]


@pytest.mark.feature("D7", "G21")
async def test_info_without_stacks_needs_no_question(member: Member, caller: Caller) -> None:
    """It is answered at once, by what the broker knows."""
    before = len(commands(member.call))
    answer = await caller.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, WHOM)
    info = decode_answer(RunningInfo, answer.body)
    assert (info.jstack, info.properties["consumerGroup"]) == (None, "g")
    assert len(commands(member.call)) == before


@pytest.mark.feature("D21", "G21")
@pytest.mark.parametrize(
    ("code", "result"),
    [
        (Code.OK, DirectResult.CR_SUCCESS),
        (Code.FAILED_TO_CONSUME_MESSAGE, DirectResult.CR_LATER),
        (Code.MESSAGE_CORRUPTED, DirectResult.CR_RETURN_NULL),
        (Code.NOT_IMPLEMENTED, None),
    ],
)
async def test_message_out_of_turn(
    broker: Broker, member: Member, caller: Caller, code: Code, result: DirectResult | None
) -> None:
    """The client gets the message, and how it took it is told; one that cannot do that is no error."""
    wanted = await stored(broker, caller)
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(caller.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, wanted))
        await until(lambda: member.asked().HasField("verify_message_command"))
        asked = member.asked().verify_message_command
        member.say(v2.TelemetryCommand(verify_message_result=v2.VerifyMessageResult(nonce=asked.nonce)), code)
        answer = await asking
    assert (asked.message.body, asked.message.topic.name) == (b"body", "T")
    assert asked.message.system_properties.message_id == "U1"
    told = decode_answer(ConsumedDirectly, answer.body)
    assert told.consume_result == result
    assert (told.remark is None) == (result is not None)


async def test_answer_of_another_client_counts_for_nothing(broker: Broker, member: Member, caller: Caller) -> None:
    """A nonce that a client was not asked with, or was before, is no answer; the Node.js client says it elsewhere."""
    wanted = await stored(broker, caller)
    other = make_call({**METADATA, "x-mq-client-id": "other@1"})
    stream = member.port.telemetry(other)
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(caller.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, wanted))
        await until(lambda: member.asked().HasField("verify_message_command"))
        nonce = member.asked().verify_message_command.nonce
        result = v2.TelemetryCommand(verify_message_result=v2.VerifyMessageResult(nonce=nonce))
        result.status.code = Code.OK
        stream.received(result.SerializeToString())
        member.say(v2.TelemetryCommand(verify_message_command=v2.VerifyMessageCommand(nonce="guessed")))
        own = v2.TelemetryCommand(verify_message_command=v2.VerifyMessageCommand(nonce=nonce))
        member.say(own, Code.NOT_IMPLEMENTED)
        member.say(own, Code.OK)
        answer = await asking
    assert decode_answer(ConsumedDirectly, answer.body).consume_result is None


async def test_client_that_is_silent(member: Member, caller: Caller, clock: ManualClock) -> None:
    """It has ten seconds; then the answer is 207, and what it says later is of no use."""
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(caller.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, STACKS))
        await until(lambda: member.asked().HasField("print_thread_stack_trace_command"))
        nonce = member.asked().print_thread_stack_trace_command.nonce
        await clock.elapse(CALL_LIMIT_MS - 1)
        assert not asking.done()
        await clock.elapse(1)
        answer = await asking
    assert answer.code == ResponseCode.CONSUME_MSG_TIMEOUT
    assert answer.remark == f"consumer <g> <me@1> Timeout: no answer in {CALL_LIMIT_MS} ms"
    member.say(v2.TelemetryCommand(thread_stack_trace=v2.ThreadStackTrace(nonce=nonce)))


async def test_client_that_leaves_before_it_answers(member: Member, caller: Caller) -> None:
    """Whoever asked hears of it at once, and so does who asks a client that has no stream, or is no member."""
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(caller.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, STACKS))
        await until(lambda: member.asked().HasField("print_thread_stack_trace_command"))
        member.stream.ended()
        no_stream = await caller.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, STACKS)
        request = v2.NotifyClientTerminationRequest(group=v2.Resource(name="g"))
        member.port.call("NotifyClientTermination", request, v2.NotifyClientTerminationResponse)
        left = await asking
    none = await caller.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, STACKS)
    assert [answer.remark for answer in (no_stream, left, none)] == [
        "invoke consumer <g> <me@1> Exception: the client has no telemetry stream",
        "invoke consumer <g> <me@1> Exception: the client has gone",
        "The Consumer <g> <me@1> not online",
    ]
