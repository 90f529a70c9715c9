"""The simple consumer against a real broker, ours and the official one."""

import asyncio

import pytest

from rocketlet.client import (
    ClientStateError,
    ConsumeFrom,
    Message,
    Producer,
    ReceivedMessage,
    ResponseError,
    SimpleConsumer,
    SimpleConsumerSettings,
    Sql,
)
from rocketlet.common.pop_texts import parse_handle

SETTINGS = SimpleConsumerSettings(consume_from=ConsumeFrom.FIRST, wait_ms=5_000)
SHORT_MS = 10_000


def simple_consumer(address: str, expression: str | Sql = "*", topic: str = "T", group: str = "cg") -> SimpleConsumer:
    """Return a consumer that begins with the first message."""
    consumer = SimpleConsumer(group, address, settings=SETTINGS)
    consumer.subscribe(topic, expression)
    return consumer


async def receive_all(consumer: SimpleConsumer, count: int, invisible_ms: int = 60_000) -> list[ReceivedMessage]:
    """Return so many messages, in the order of their bodies."""
    found: list[ReceivedMessage] = []
    async with asyncio.timeout(30):
        while len(found) < count:
            found += await consumer.receive(invisible_ms=invisible_ms)
    return sorted(found, key=lambda message: message.body)


@pytest.mark.feature("O1")
async def test_each_message_is_received_once(address: str, producer: Producer) -> None:
    """By whoever of two asks first; what is acknowledged does not come again, whoever asks."""
    for number in range(20):
        await producer.send(Message("T", b"%02d" % number, tags="tag", keys=["k"]))
    async with simple_consumer(address) as first, simple_consumer(address) as second:
        some = await first.receive(7)
        others = await receive_all(second, 20 - len(some))
        assert len(some) <= 7
        assert sorted(each.body for each in some + others) == [b"%02d" % number for number in range(20)]
        message = some[0]
        assert (message.topic, message.tags, message.keys, message.reconsume_times) == ("T", "tag", ("k",), 0)
        await first.ack(*some, *others)
        assert await second.receive(wait_ms=0) == []


@pytest.mark.feature("O3")
async def test_change_of_the_time(address: str, producer: Producer) -> None:
    """A message that is given back comes at once, with one attempt more; its new handle acknowledges it then."""
    for number in range(3):
        await producer.send(Message("T", b"%d" % number))
    async with simple_consumer(address) as consumer:
        messages = await receive_all(consumer, 3)
        handles = [parse_handle(message.properties["POP_CK"]) for message in messages]
        await consumer.change_invisible(messages[0], 0)
        await consumer.change_invisible(messages[1], 300_000)
        changed = parse_handle(messages[1].properties["POP_CK"])
        assert (changed.invisible_ms, handles[1].invisible_ms) == (300_000, 60_000)
        await consumer.ack(*messages[1:])
        [again] = await receive_all(consumer, 1)
        assert (again.body, again.topic, again.reconsume_times) == (b"0", "T", 1)
        await consumer.ack(again)
        assert await consumer.receive(wait_ms=0) == []


async def test_wait_for_a_message(address: str, producer: Producer) -> None:
    """It comes while the broker holds the request."""
    await producer.send(Message("T", b"first"))
    async with simple_consumer(address) as consumer:
        await consumer.ack(*await receive_all(consumer, 1))
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(receive_all(consumer, 1))
            await producer.send(Message("T", b"second"))
        [message] = waiting.result()
        assert message.body == b"second"


@pytest.mark.parametrize("expression", ["red || green", Sql("colour IN ('red', 'green')")], ids=["tags", "sql"])
async def test_filter(address: str, producer: Producer, expression: str | Sql) -> None:
    """What is not asked for is passed over."""
    for colour in ("red", "blue", "green"):
        await producer.send(Message("T", colour.encode(), tags=colour, properties={"colour": colour}))
    async with simple_consumer(address, expression) as consumer:
        messages = await receive_all(consumer, 2)
        assert [message.body for message in messages] == [b"green", b"red"]


async def test_tags_of_one_hash(address: str, producer: Producer) -> None:
    """What only has the same hash as a tag that is asked for is acknowledged."""
    await producer.send(Message("T", b"other", tags="BB"))
    await producer.send(Message("T", b"wanted", tags="Aa"))
    async with simple_consumer(address, "Aa") as consumer:
        [message] = await receive_all(consumer, 1)
        assert message.body == b"wanted"


async def test_namespace(address: str) -> None:
    """Names are the application's; what is given back comes again by a retry topic of the namespace."""
    settings = SimpleConsumerSettings(consume_from=ConsumeFrom.FIRST, wait_ms=5_000, namespace="ns")
    consumer = SimpleConsumer("cg", address, settings=settings)
    consumer.subscribe("T")
    async with Producer("pg", address) as producer:
        await producer.send(Message("ns%T", b"x"))
    async with consumer:
        [message] = await receive_all(consumer, 1)
        assert message.topic == "T"
        await consumer.change_invisible(message, 0)
        [again] = await receive_all(consumer, 1)
        assert (again.topic, again.reconsume_times) == ("T", 1)
        await consumer.ack(again)


async def test_mistakes(own_address: str) -> None:
    """Each is told with what was wrong."""
    consumer = simple_consumer(own_address)
    with pytest.raises(ClientStateError, match="is not started yet"):
        await consumer.receive()
    async with Producer("pg", own_address) as producer:
        sent = await producer.send(Message("T", b"x"))
    async with consumer:
        for fields, text in (
            ({"max_messages": 33}, "max_messages is 33, allowed are 1 to 32"),
            ({"invisible_ms": 0}, "invisible_ms is 0, allowed are 1 or more"),
            ({"wait_ms": -1}, "wait_ms is -1, allowed are 0 or more"),
        ):
            with pytest.raises(ValueError, match=text):
                await consumer.receive(**fields)
        [message] = await receive_all(consumer, 1)
        with pytest.raises(ValueError, match="invisible_ms is -1"):
            await consumer.change_invisible(message, -1)
        message.properties["POP_CK"] = parse_handle(message.properties["POP_CK"])._replace(queue_id=99).text()
        with pytest.raises(ResponseError):
            await consumer.ack(message)
        del message.properties["POP_CK"]
        with pytest.raises(ValueError, match=f"{sent.message_id}.* was not handed out by POP"):
            await consumer.ack(message)
    with pytest.raises(ClientStateError, match="is closed"):
        consumer.subscribe("T")


async def test_unknown_topic_is_waited_for(own_address: str) -> None:
    """A topic that is made later is found while a consumer waits."""
    async with simple_consumer(own_address) as consumer, Producer("pg", own_address) as producer:
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(receive_all(consumer, 1))
            await producer.send(Message("T", b"x"))
        [message] = waiting.result()
        assert message.body == b"x"
        consumer.unsubscribe("T")
        await consumer.ack(message)
        assert await consumer.receive(wait_ms=0) == []


async def test_answer_for_a_caller_that_has_gone(own_address: str) -> None:
    """A message that comes when nobody waits for it any more is given back at once."""
    async with Producer("pg", own_address) as producer, simple_consumer(own_address) as consumer:
        await producer.send(Message("T", b"first"))
        await consumer.ack(*await receive_all(consumer, 1))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await consumer.receive()
        await producer.send(Message("T", b"second"))
        [message] = await receive_all(consumer, 1)
        assert message.body == b"second"
