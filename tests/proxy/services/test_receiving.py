"""Messages that are received, acknowledged, changed and given up, by the services that answer clients of gRPC."""

from typing import Any, NamedTuple

import pytest
from grpc_calls import make_call
from probe_calls import ProbeCall
from raw_calls import Caller, until

from rocketlet.broker.operations import BrokerOperations
from rocketlet.broker.server import Broker
from rocketlet.common.codes import ResponseCode
from rocketlet.common.metadata import SubscriptionGroupConfig
from rocketlet.proxy.messages import v2
from rocketlet.proxy.messages.enums import Code, FilterType
from rocketlet.proxy.services.acknowledging import AckService
from rocketlet.proxy.services.keepers import ClientKeepers
from rocketlet.proxy.services.receiving import MOST_WAIT_MS, ReceiveService
from rocketlet.testing.manual_clock import ManualClock

MINUTE_S = 60
MINUTE_MS = 60_000


class Client:
    """A client of the services of a broker; ``is_alive`` while it is heard of."""

    def __init__(self, operations: BrokerOperations) -> None:
        self.operations = operations
        self.is_alive = True
        pop = operations.pop()
        self.keepers = ClientKeepers(lambda _: self.is_alive, operations.clock.now_ms, pop.release)
        self.receives = ReceiveService(operations, self.keepers)
        self.acks = AckService(operations, lambda _: None)

    def begin(self, call: ProbeCall | None = None, **fields: Any) -> ProbeCall:
        """Ask for messages, and return the call, which may be answered later."""
        call = call or ProbeCall()
        self.receives.receive(make_request(**fields), "client", call)
        self.operations.scheduler.end_turn()
        return call

    def receive(self, **fields: Any) -> list[v2.Message]:
        """Return what is handed out at once."""
        at_once: dict[str, Any] = {"long_polling_timeout": 0, **fields}
        return read(self.begin(**at_once)).messages

    async def acknowledge(self, *messages: v2.Message, group: str = "g") -> Code:
        """Be done with messages; return what is said of all together."""
        entries = [
            v2.AckMessageEntry(message_id=each.system_properties.message_id, receipt_handle=handle_of(each))
            for each in messages
        ]
        request = v2.AckMessageRequest(topic=v2.Resource(name="T"), group=v2.Resource(name=group), entries=entries)
        call = make_call()
        self.acks.serve(request.SerializeToString(), call)
        self.operations.scheduler.end_turn()
        await until(lambda: call.status is not None)
        answer = call.one_answer(v2.AckMessageResponse)
        assert [entry.receipt_handle for entry in answer.entries] == [entry.receipt_handle for entry in entries]
        return Code(answer.status.code)

    async def change(self, message: v2.Message, seconds: int, group: str = "g") -> tuple[Code, str]:
        """Change how long a message stays invisible; return what is said, and its handle now."""
        request = v2.ChangeInvisibleDurationRequest(
            topic=v2.Resource(name="T"), group=v2.Resource(name=group), receipt_handle=handle_of(message)
        )
        request.invisible_duration.FromSeconds(seconds)
        call = ProbeCall()
        self.acks.change(request, call)
        self.operations.scheduler.end_turn()
        await until(lambda: call.status is not None)
        answer = call.one_answer(v2.ChangeInvisibleDurationResponse)
        return Code(answer.status.code), answer.receipt_handle

    async def forward(self, message: v2.Message) -> Code:
        """Give a message up."""
        request = v2.ForwardMessageToDeadLetterQueueRequest(
            topic=v2.Resource(name="T"), group=v2.Resource(name="g"), receipt_handle=handle_of(message)
        )
        call = ProbeCall()
        self.acks.forward(request, call)
        self.operations.scheduler.end_turn()
        await until(lambda: call.status is not None)
        return Code(call.one_answer(v2.ForwardMessageToDeadLetterQueueResponse).status.code)


class Received(NamedTuple):
    """An answer to a request for messages."""

    status: v2.Status
    messages: list[v2.Message]


def make_request(
    topic: str = "T",
    group: str = "g",
    *,
    batch_size: int = 32,
    invisible: int = MINUTE_S,
    long_polling_timeout: int | None = None,
    expression: str = "*",
    is_sql: bool = False,
    auto_renew: bool = False,
    attempt_id: str = "",
) -> v2.ReceiveMessageRequest:
    """Return a request, with times in seconds."""
    request = v2.ReceiveMessageRequest(
        group=v2.Resource(name=group),
        message_queue=v2.MessageQueue(topic=v2.Resource(name=topic), id=3),
        filter_expression=v2.FilterExpression(type=FilterType.SQL if is_sql else FilterType.TAG, expression=expression),
        batch_size=batch_size,
        auto_renew=auto_renew,
    )
    if not auto_renew:
        request.invisible_duration.FromSeconds(invisible)
    if long_polling_timeout is not None:
        request.long_polling_timeout.FromSeconds(long_polling_timeout)
    if attempt_id:
        request.attempt_id = attempt_id
    return request


def read(call: ProbeCall) -> Received:
    """Return what an answer says, which has its parts in order."""
    assert call.status == 0, (call.status, call.text)
    first, *others, last = call.answers(v2.ReceiveMessageResponse)
    assert first.WhichOneof("content") == "status"
    assert last.WhichOneof("content") == "delivery_timestamp"
    assert {each.WhichOneof("content") for each in others} <= {"message"}
    return Received(first.status, [each.message for each in others])


def handle_of(message: v2.Message) -> str:
    """Return the handle of a message."""
    return message.system_properties.receipt_handle


def bodies(messages: list[v2.Message]) -> list[bytes]:
    """Return the bodies of messages."""
    return [message.body for message in messages]


@pytest.fixture(name="client")
async def client_(broker: Broker, caller: Caller) -> Client:
    """A client, and three messages for it."""
    await send(caller, b"0", b"1", b"2")
    return Client(broker.operations)


async def send(caller: Caller, *sent: bytes, properties: str = "") -> None:
    """Send messages to the one queue of the topic."""
    for body in sent:
        answer = await caller.send("T", body, queue_id=0, default_topic_queue_nums=1, properties=properties)
        assert answer.code == ResponseCode.SUCCESS, answer.remark


@pytest.mark.feature("G4")
async def test_messages_are_handed_out_once(client: Client, clock: ManualClock) -> None:
    """Each under a handle of its own, as the first attempt; acknowledged, none comes again."""
    messages = client.receive()
    assert bodies(messages) == [b"0", b"1", b"2"]
    assert [each.system_properties.delivery_attempt for each in messages] == [1, 1, 1]
    assert len({handle_of(each) for each in messages}) == 3
    nothing = read(client.begin(long_polling_timeout=0))
    assert (nothing.status.code, nothing.messages) == (Code.MESSAGE_NOT_FOUND, [])
    assert await client.acknowledge(*messages) == Code.OK
    assert await client.acknowledge(messages[2]) == Code.OK
    await clock.elapse(2 * MINUTE_MS)
    assert client.receive() == []


@pytest.mark.feature("G14")
async def test_waiting_for_a_message(client: Client, caller: Caller, clock: ManualClock) -> None:
    """It comes, or the wait ends in time; who has gone is handed nothing."""
    await client.acknowledge(*client.receive())
    gone, waiting = client.begin(long_polling_timeout=15), client.begin(long_polling_timeout=15)
    gone.cancel()
    await send(caller, b"new")
    assert bodies(read(waiting).messages) == [b"new"]
    assert gone.sent == []
    waiting = client.begin(long_polling_timeout=99)
    await clock.elapse(MOST_WAIT_MS - 51)
    assert waiting.status is None
    await clock.elapse(1)
    assert read(waiting).status.code == Code.MESSAGE_NOT_FOUND


@pytest.mark.feature("G14")
@pytest.mark.parametrize(
    ("asked", "left_ms", "waited_ms"),
    [
        (None, 23_000, 20_000),
        (None, 10_000, 8_500),
        (30, 12_000, 11_800),
        (2, 5_000, 2_000),
        (5, 5_000, 4_800),
        (5, 4_900, 4_700),
    ],
)
async def test_how_long_a_client_waits(
    client: Client, clock: ManualClock, asked: int | None, left_ms: int, waited_ms: int
) -> None:
    """As long as it asks for, or as its deadline lets it."""
    client.receive()
    call = client.begin(ProbeCall(left_ms), long_polling_timeout=asked)
    await clock.elapse(waited_ms - 51)
    assert call.status is None
    await clock.elapse(1)
    assert read(call).status.code == Code.MESSAGE_NOT_FOUND


@pytest.mark.feature("G14")
@pytest.mark.parametrize(("version", "code"), [("5.2.0", Code.ILLEGAL_POLLING_TIME), ("1.0.8", Code.BAD_REQUEST)])
async def test_deadline_before_the_end_of_the_wait(client: Client, version: str, code: Code) -> None:
    """A client that would give up before is told so, in the words of its version."""
    call = client.begin(ProbeCall(3_000, x_mq_client_version=version), long_polling_timeout=20)
    assert read(call).status.code == code
    assert len(client.receive()) == 3


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"invisible": 9}, Code.ILLEGAL_INVISIBLE_TIME),
        ({"invisible": 12 * 3600 + 1}, Code.ILLEGAL_INVISIBLE_TIME),
        ({"batch_size": -1}, Code.BAD_REQUEST),
        ({"topic": "a b"}, Code.ILLEGAL_TOPIC),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, Code.ILLEGAL_TOPIC),
        ({"group": "a b"}, Code.ILLEGAL_CONSUMER_GROUP),
        ({"expression": "||"}, Code.ILLEGAL_FILTER_EXPRESSION),
        ({"expression": "", "is_sql": True}, Code.ILLEGAL_FILTER_EXPRESSION),
        ({"expression": "a = = b", "is_sql": True}, Code.ILLEGAL_FILTER_EXPRESSION),
        ({"topic": "unknown"}, Code.INTERNAL_SERVER_ERROR),
    ],
)
async def test_refused_requests(client: Client, fields: dict[str, Any], code: Code) -> None:
    """Each says why, at once."""
    assert read(client.begin(**fields)).status.code == code


async def test_size_of_a_batch(client: Client) -> None:
    """None at all is one, as much as anybody can want is 32."""
    assert bodies(client.receive(batch_size=0)) == [b"0"]
    assert bodies(client.receive(batch_size=1_000)) == [b"1", b"2"]


async def test_tags_of_one_hash(client: Client, caller: Caller, clock: ManualClock) -> None:
    """What has another tag of the same hash is acknowledged; SQL is asked as it stands."""
    await client.acknowledge(*client.receive())
    await send(caller, b"other", properties="TAGS\x01BB\x02")
    await send(caller, b"wanted", properties="TAGS\x01Aa\x02n\x015\x02")
    assert bodies(client.receive(expression=" Aa || x ")) == [b"wanted"]
    assert bodies(client.receive(group="sql", expression="n > 4", is_sql=True)) == [b"wanted"]
    await clock.elapse(2 * MINUTE_MS)
    assert bodies(client.receive()) == [b"wanted"]


@pytest.mark.feature("G7")
@pytest.mark.feature("G7")
async def test_change_of_the_third_of_a_batch(client: Client, clock: ManualClock) -> None:
    """Its new handle acknowledges it; the old one is over, and says so with itself as handle."""
    messages = client.receive(invisible=20)
    third = messages[2]
    old = handle_of(third)
    code, handle = await client.change(third, 10)
    assert code == Code.OK
    assert handle != old
    assert await client.change(third, 10) == (Code.INVALID_RECEIPT_HANDLE, old)
    third.system_properties.receipt_handle = handle
    assert await client.acknowledge(*messages) == Code.OK
    await clock.elapse(2 * MINUTE_MS)
    assert client.receive() == []


@pytest.mark.feature("G5")
async def test_refused_message_comes_at_once(client: Client, clock: ManualClock) -> None:
    """With a change to no time at all; as its second attempt."""
    first, *_ = client.receive()
    code, _ = await client.change(first, 0)
    assert code == Code.OK
    await clock.elapse(1)
    again = client.receive()
    assert [(each.body, each.system_properties.delivery_attempt) for each in again] == [(b"0", 2)]


@pytest.mark.feature("G13")
@pytest.mark.feature("G13")
async def test_handles_that_are_worth_nothing(client: Client, clock: ManualClock) -> None:
    """Whatever they are, clients hear that they may give up."""
    [first, second, third] = client.receive(invisible=10)
    stale = handle_of(second)
    for text in ("", "garbage", "0 1 2", stale.replace("broker-a", "broker-a x"), stale[:-3] + "9" * 30):
        second.system_properties.receipt_handle = text
        if text != stale[:-3] + "9" * 30:  # nobody believes the ninth word
            assert await client.acknowledge(second) == Code.INVALID_RECEIPT_HANDLE
            assert await client.change(second, 10) == (Code.INVALID_RECEIPT_HANDLE, text)
            assert await client.forward(second) == Code.INVALID_RECEIPT_HANDLE
    words = stale.split(" ")
    second.system_properties.receipt_handle = " ".join([*words[:7], "77", *words[8:]])
    assert await client.acknowledge(second) == Code.INVALID_RECEIPT_HANDLE
    assert await client.change(third, 13 * 3600) == (Code.ILLEGAL_INVISIBLE_TIME, handle_of(third))
    second.system_properties.receipt_handle = stale
    await clock.elapse(10_000)
    assert await client.acknowledge(first, second) == Code.INVALID_RECEIPT_HANDLE
    again = client.receive()
    assert await client.acknowledge(second, again[0]) == Code.MULTIPLE_RESULTS


@pytest.mark.feature("G6")
@pytest.mark.feature("G6")
async def test_kept_messages(client: Client, clock: ManualClock) -> None:
    """A client that lives keeps its messages, whichever of the batch; what one leaves behind comes after a second."""
    messages = client.receive(auto_renew=True)
    for _ in range(4):
        await clock.elapse(40_000)
        assert client.receive() == []
    assert await client.acknowledge(*messages[1:]) == Code.OK
    client.keepers.gone("client")
    await clock.elapse(999)
    assert client.receive() == []
    await clock.elapse(1)
    assert bodies(client.receive()) == [b"0"]


async def test_nobody_keeps_messages_for_ever(client: Client, clock: ManualClock) -> None:
    """After three hours they come again."""
    client.receive(auto_renew=True)
    for _ in range(3 * 60 - 1):
        await clock.elapse(MINUTE_MS)
    assert client.receive() == []
    await clock.elapse(MINUTE_MS)
    assert bodies(client.receive()) == [b"0", b"1", b"2"]


@pytest.mark.feature("G8")
@pytest.mark.feature("G8")
async def test_all_attempts_are_used_up(client: Client, broker: Broker, clock: ManualClock) -> None:
    """The message goes to the dead letters of its group, with where it was."""
    broker.parts.state.groups.put(SubscriptionGroupConfig(group_name="g", retry_max_times=1))
    first, *others = client.receive(invisible=10)
    await client.acknowledge(*others)
    await clock.elapse(10_000)
    [again] = client.receive(invisible=10)
    assert (again.body, again.system_properties.delivery_attempt) == (b"0", 2)
    await clock.elapse(10_000)
    assert client.receive() == []
    [dead] = client.receive(topic="%DLQ%g", group="mourners")
    assert dead.body == b"0"
    origin = dead.system_properties.dead_letter_queue
    assert (origin.topic, origin.message_id) == ("T", first.system_properties.message_id)
    await clock.elapse(2 * MINUTE_MS)
    assert client.receive() == []


@pytest.mark.feature("G8")
async def test_giving_up(client: Client, clock: ManualClock) -> None:
    """Once, however often it is asked for; also after a change."""
    first, second, third = client.receive()
    assert await client.forward(first) == Code.OK
    assert await client.forward(first) == Code.OK
    _, handle = await client.change(second, 30)
    second.system_properties.receipt_handle = handle
    assert await client.forward(second) == Code.OK
    await client.acknowledge(third)
    assert bodies(client.receive(topic="%DLQ%g", group="mourners")) == [b"0", b"1"]
    await clock.elapse(2 * MINUTE_MS)
    assert client.receive() == []


@pytest.mark.feature("G9")
@pytest.mark.feature("G9")
async def test_messages_in_order(client: Client, broker: Broker, clock: ManualClock) -> None:
    """A batch blocks its queue, but for who asks for it again; what is not done comes again with those behind it."""
    broker.parts.state.groups.put(SubscriptionGroupConfig(group_name="g", consume_message_orderly=True))
    messages = client.receive(attempt_id="a", auto_renew=True)
    assert bodies(messages) == [b"0", b"1", b"2"]
    assert client.receive(attempt_id="b", auto_renew=True) == []
    messages = client.receive(attempt_id="a", auto_renew=True)
    assert bodies(messages) == [b"0", b"1", b"2"]
    await clock.elapse(3 * MINUTE_MS)
    assert client.receive(attempt_id="c", auto_renew=True) == []
    assert await client.acknowledge(messages[0]) == Code.OK
    assert await client.forward(messages[1]) == Code.OK
    code, handle = await client.change(messages[2], 5)
    assert code == Code.OK
    await clock.elapse(5_000)
    [again] = client.receive(attempt_id="d", auto_renew=True)
    assert (again.body, again.system_properties.delivery_attempt) == (b"2", 2)
    messages[2].system_properties.receipt_handle = handle
    assert await client.acknowledge(messages[2]) == Code.INVALID_RECEIPT_HANDLE
    assert await client.acknowledge(again) == Code.OK
    assert bodies(client.receive(topic="%DLQ%g", group="mourners")) == [b"1"]
