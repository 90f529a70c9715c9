"""What hooks see, change and forbid."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from order_book import OrderBook, about, check_of
from scripted_cluster import ScriptedCluster, refused

from rocketlet.client import (
    ClientSettings,
    ConsumeContext,
    ConsumeEnd,
    ConsumeResult,
    EndTransactionContext,
    HookOwner,
    Message,
    Producer,
    ProducerSettings,
    PullConsumer,
    PullConsumerSettings,
    PullContext,
    PushConsumer,
    PushConsumerSettings,
    ReceivedMessage,
    Role,
    SendContext,
    SendStatus,
    Session,
    TransactionProducer,
    TransactionProducerSettings,
)
from rocketlet.common.codes import ResponseCode
from rocketlet.common.errors import ConfigError, ResponseError
from rocketlet.common.properties import parse_properties
from rocketlet.common.record import decode_batch
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode

SEND = RequestCode.SEND_MESSAGE_V2


class Sends:
    """Notes what is sent, and adds a property."""

    def __init__(self) -> None:
        self.before: list[SendContext] = []
        self.after: list[SendContext] = []

    def before_send(self, context: SendContext) -> None:
        """Note an attempt."""
        context.properties["added"] = "by the hook"
        self.before.append(context)

    def after_send(self, context: SendContext) -> None:
        """Note its end."""
        self.after.append(context)


class Consumes:
    """Notes how listeners end."""

    def __init__(self) -> None:
        self.ended: asyncio.Queue[ConsumeContext] = asyncio.Queue()
        self.began: list[ConsumeContext] = []

    def before_consume(self, context: ConsumeContext) -> None:
        """Note a call."""
        assert context.end is None
        self.began.append(context)

    def after_consume(self, context: ConsumeContext) -> None:
        """Note its end."""
        self.ended.put_nowait(context)


@pytest.mark.feature("K18")
async def test_send_hook_sees_each_attempt_and_adds_properties(cluster: ScriptedCluster) -> None:
    """Two attempts, one refused: the same message, two brokers, an error and a result."""
    cluster.routes["T"] = {"broker-a": 1, "broker-b": 1}
    first, second = await cluster.add_broker("broker-a"), await cluster.add_broker("broker-b")
    first.answers[SEND] = refused(ResponseCode.SYSTEM_BUSY)
    hook = Sends()
    async with Producer("pg", cluster.nameserver.address, settings=ProducerSettings(hooks=(hook,))) as producer:
        results = [await producer.send(Message("T", b"x", tags="a", keys=["k1", "k2"])) for _ in range(2)]
    assert {result.queue.broker_name for result in results} == {"broker-b"}
    failed, *_ = (context for context in hook.after if context.error is not None)
    assert isinstance(failed.error, ResponseError)
    assert failed.address == first.address
    done = [context for context in hook.after if context.result is not None]
    assert {context.address for context in done} == {second.address}
    [message] = done[0].messages
    assert (message.topic, message.body, message.tags, message.keys) == ("T", b"x", "a", "k1 k2")
    assert message.message_id == done[0].message_id
    assert hook.before == hook.after
    for request in (*first.asked(SEND), *second.asked(SEND)):
        assert parse_properties(request.ext["i"])["added"] == "by the hook"


async def test_property_of_a_hook_reaches_each_message_of_a_batch_and_replaces_none(cluster: ScriptedCluster) -> None:
    """The application's own property of that name stays."""
    cluster.routes["T"] = {"broker-a": 1}
    broker = await cluster.add_broker("broker-a")
    broker.answers[RequestCode.SEND_BATCH_MESSAGE] = broker.answers[SEND]
    async with Producer("pg", cluster.nameserver.address, settings=ProducerSettings(hooks=(Sends(),))) as producer:
        await producer.send_batch([Message("T", b"1"), Message("T", b"2", properties={"added": "before"})])
    [request] = broker.asked(RequestCode.SEND_BATCH_MESSAGE)
    values = [parse_properties(part.property_text)["added"] for part in decode_batch(request.body)]
    assert values == ["by the hook", "before"]


async def test_one_way_sends_are_seen(cluster: ScriptedCluster) -> None:
    """There is no result, and no error either."""
    cluster.routes["T"] = {"broker-a": 1}
    broker = await cluster.add_broker("broker-a")
    hook = Sends()
    async with Producer("pg", cluster.nameserver.address, settings=ProducerSettings(hooks=(hook,))) as producer:
        await producer.send_oneway(Message("T", b"x"))
        [request] = await broker.wait_asked(SEND)
    [context] = hook.after
    assert (context.is_oneway, context.result, context.error) == (True, None, None)
    assert parse_properties(request.ext["i"])["added"] == "by the hook"


@pytest.mark.feature("K18")
async def test_forbidden_send_reaches_no_broker(cluster: ScriptedCluster) -> None:
    """What the hook raises is what the caller gets, at once."""

    class OnlyPaid:
        def check_send(self, context: SendContext) -> None:
            if any(message.tags != "paid" for message in context.messages):
                raise PermissionError("not paid")

    cluster.routes["T"] = {"broker-a": 1}
    broker = await cluster.add_broker("broker-a")
    settings = ProducerSettings(hooks=(OnlyPaid(),))
    async with Producer("pg", cluster.nameserver.address, settings=settings) as producer:
        with pytest.raises(PermissionError, match="not paid"):
            await producer.send(Message("T", b"x"))
        assert (await producer.send(Message("T", b"x", tags="paid"))).status is SendStatus.SEND_OK
    assert len(broker.asked(SEND)) == 1


async def test_hook_that_fails_ends_no_send(cluster: ScriptedCluster, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged; the hooks behind it are still called."""

    class Broken:
        def before_send(self, context: SendContext) -> None:
            raise KeyError("before")

        def after_send(self, context: SendContext) -> None:
            raise KeyError("after")

    cluster.routes["T"] = {"broker-a": 1}
    await cluster.add_broker("broker-a")
    hook = Sends()
    settings = ProducerSettings(hooks=(Broken(), hook))
    async with Producer("pg", cluster.nameserver.address, settings=settings) as producer:
        assert (await producer.send(Message("T", b"x"))).status is SendStatus.SEND_OK
    assert len(hook.after) == 1
    assert caplog.text.count("Broken") >= 2


@pytest.mark.feature("K18")
async def test_rpc_hook_sees_every_request_and_answer(cluster: ScriptedCluster) -> None:
    """It may add header fields; name servers are asked through it as well."""

    class Calls:
        def __init__(self) -> None:
            self.answered: list[tuple[str, int, int]] = []

        def before_request(self, address: str, request: Command) -> None:
            request.ext["tenant"] = "blue"

        def after_response(self, address: str, request: Command, answer: Command) -> None:
            self.answered.append((address, request.code, answer.code))

    cluster.routes["T"] = {"broker-a": 1}
    broker = await cluster.add_broker("broker-a")
    hook = Calls()
    async with Producer("pg", cluster.nameserver.address, settings=ProducerSettings(hooks=(hook,))) as producer:
        await producer.send(Message("T", b"x"))
    assert {request.ext["tenant"] for request in (*broker.requests, *cluster.nameserver.requests)} == {"blue"}
    assert (broker.address, SEND, 0) in hook.answered
    assert (cluster.nameserver.address, RequestCode.GET_ROUTEINFO_BY_TOPIC, 0) in hook.answered


async def test_hook_of_a_source_lives_as_long_as_its_producer(cluster: ScriptedCluster) -> None:
    """It is made for one producer when that opens, and left when all sends have ended."""

    class Source:
        def __init__(self) -> None:
            self.events: list[object] = []

        @asynccontextmanager
        async def attach(self, owner: HookOwner) -> AsyncGenerator[Sends]:
            hook = Sends()
            self.events += [owner.group, owner.role]
            yield hook
            self.events.append(len(hook.after))

    cluster.routes["T"] = {"broker-a": 1}
    await cluster.add_broker("broker-a")
    source = Source()
    async with Producer("pg", cluster.nameserver.address, settings=ProducerSettings(hooks=(source,))) as producer:
        producer.send_nowait(Message("T", b"x"))
    assert source.events == ["pg", Role.PRODUCER, 1]


@pytest.mark.feature("K18")
async def test_consume_hook_sees_how_listeners_end(address: str) -> None:
    """Success, a failure that was returned, and one that was raised."""

    async def on_messages(messages: list[ReceivedMessage]) -> ConsumeResult:
        if messages[0].body == b"raise":
            raise ValueError("as the test wants it")
        return ConsumeResult.RETRY if messages[0].body == b"retry" else ConsumeResult.SUCCESS

    hook = Consumes()
    bodies = (b"good", b"retry", b"raise")
    async with Producer("pg", address) as producer:
        await producer.send(Message("T", b"good"))
        consumer = PushConsumer("cg", address, settings=PushConsumerSettings(hooks=(hook,), max_retries=0))
        consumer.subscribe("T", "*", on_messages)
        async with consumer:
            for body in bodies:
                await producer.send(Message("T", body))
            ends: dict[bytes, ConsumeContext] = {}
            while set(ends) < set(bodies):
                context = await hook.ended.get()
                ends[context.messages[0].body] = context
    assert [ends[body].end for body in bodies] == [ConsumeEnd.SUCCESS, ConsumeEnd.FAILED, ConsumeEnd.EXCEPTION]
    assert [ends[body].has_succeeded for body in bodies] == [True, False, False]
    assert isinstance(ends[b"raise"].error, ValueError)
    assert set(map(id, ends.values())) <= set(map(id, hook.began))


@pytest.mark.feature("K18")
async def test_filter_leaves_messages_out_and_they_count_as_finished(address: str) -> None:
    """What the filter does not keep comes to nobody, and not again either."""

    class Even:
        def __init__(self) -> None:
            self.pulled = 0

        def keeps(self, group: str, message: ReceivedMessage) -> bool:
            return group == "cg" and int(message.body) % 2 == 0

        def after_pull(self, context: PullContext) -> None:
            self.pulled += len(context.messages)

    hook = Even()
    async with Producer("pg", address) as producer:
        queue = (await producer.send(Message("T", b"0"))).queue
        for number in range(1, 7):
            await producer.send(Message("T", str(number).encode()), queue=queue)
    settings = PullConsumerSettings(hooks=(hook,))
    async with PullConsumer("cg", address, settings=settings) as consumer:
        await consumer.assign([queue])
        await consumer.seek(queue, 0)
        seen: list[bytes] = []
        while len(seen) < 4:
            seen += [message.body for message in await consumer.poll()]
        await consumer.commit()
        assert await consumer.committed(queue) == 7
    assert seen == [b"0", b"2", b"4", b"6"]
    assert hook.pulled >= 7


async def test_what_is_no_hook_is_refused() -> None:
    """The mistake is told when the settings are made, and a class in the place of an object as well."""
    for thing in (object(), Sends, "hook"):
        with pytest.raises(ConfigError, match="is no hook"):
            ProducerSettings(hooks=(thing,))  # pyright: ignore[reportArgumentType] # what is refused


async def test_settings_of_a_shared_session_are_the_session_s() -> None:
    """A producer that shares a session cannot have a namespace of its own, but hooks."""
    session = Session("127.0.0.1:1")
    with pytest.raises(ConfigError, match="namespace is a setting of the session"):
        Producer("pg", session=session, settings=ProducerSettings(namespace="ns"))
    Producer("pg", session=session, settings=ProducerSettings(hooks=(Sends(),)))
    with pytest.raises(ConfigError, match="belongs into the settings of a producer or consumer"):
        Session("127.0.0.1:1", settings=ClientSettings(hooks=(Sends(),)))


@pytest.mark.feature("K18")
async def test_end_of_a_transaction_is_seen(cluster: ScriptedCluster) -> None:
    """Commit and rollback of a send, and the answer to a question of the broker."""

    class Ends:
        def __init__(self) -> None:
            self.seen: list[EndTransactionContext] = []

        def end_transaction(self, context: EndTransactionContext) -> None:
            self.seen.append(context)

    cluster.routes["T"] = {"broker-a": 1}
    broker = await cluster.add_broker("broker-a")
    hook = Ends()
    settings = TransactionProducerSettings(hooks=(hook,))
    listener = OrderBook()
    async with TransactionProducer(
        "pg", cluster.nameserver.address, listener=listener, topics=["T"], settings=settings
    ) as producer:
        sent = [
            await producer.send_in_transaction(Message("T", b"x", properties=about(outcome)))
            for outcome in ("commit", "rollback")
        ]
        broker.connections[0].send_oneway(check_of(b"1", "commit"))
        await broker.wait_asked(RequestCode.END_TRANSACTION, 3)
    assert [each.state for each in hook.seen] == ["COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "COMMIT_MESSAGE"]
    assert [each.is_from_check for each in hook.seen] == [False, False, True]
    assert [each.message_id for each in hook.seen[:2]] == [each.message_id for each in sent]
    assert {each.address for each in hook.seen} == {broker.address}
    assert {(each.group, each.message.topic) for each in hook.seen} == {("pg", "T")}
