"""Batches that make themselves from single sends."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from scripted_cluster import ScriptedCluster, ScriptedServer, refused, silent, stored

from rocketlet.client import Message, Producer, ProducerSettings, PullConsumer, SendResult, select_by_hash
from rocketlet.common.codes import ResponseCode
from rocketlet.common.errors import ClientStateError, ResponseError
from rocketlet.common.record import decode_batch
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.headers.send import SendReply, decode_send_header
from rocketlet.testing import ManualClock

SEND, BATCH = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE
REPLY = RequestCode.SEND_REPLY_MESSAGE_V2
ON = ProducerSettings(auto_batch=True)
Start = Callable[..., Any]


@pytest.fixture
async def broker(cluster: ScriptedCluster) -> ScriptedServer:
    """Return the only broker of topics T and U, which stores batches at offset 70 of their queue."""
    cluster.routes |= {"T": {"broker-a": 2}, "U": {"broker-a": 1}, "%RETRY%g": {"broker-a": 1}}
    return await cluster.add_broker("broker-a", {BATCH: stored_one_by_one, REPLY: stored})


@pytest.fixture
def clock() -> ManualClock:
    """Return a clock that stands still, so that a batch leaves when the test says so."""
    return ManualClock()


@pytest.fixture
async def producer(cluster: ScriptedCluster, broker: ScriptedServer, clock: ManualClock) -> AsyncGenerator[Producer]:
    """Yield a producer that makes batches."""
    async with Producer("pg", cluster.nameserver.address, settings=ON, clock=clock) as running:
        await running.fetch_queues("T")
        yield running


def stored_one_by_one(command: Command) -> Command:
    """Answer a batch: each message has an offset id of its own."""
    count = len(decode_batch(command.body))
    reply = SendReply(
        msg_id=",".join(f"OFFSET-{number}" for number in range(count)),
        queue_id=decode_send_header(command).queue_id,
        queue_offset=70,
    )
    return Command.response(ResponseCode.SUCCESS, ext=reply)


def bodies(broker: ScriptedServer) -> list[list[bytes]]:
    """Return the bodies of each batch that a broker got."""
    return [[part.body for part in decode_batch(command.body)] for command in broker.asked(BATCH)]


def message(body: bytes = b"x", **fields: Any) -> Message:
    """Return a message of topic T."""
    return Message("T", body, **fields)


@pytest.mark.feature("K20")
async def test_sends_of_ten_milliseconds_are_one_request(
    producer: Producer, broker: ScriptedServer, clock: ManualClock
) -> None:
    """What comes within 10 ms leaves together; each caller gets key, offset id and place of its own message."""
    waiting = [producer.send_nowait(message(b"%d" % number)) for number in range(5)]
    await clock.elapse(9)
    assert not broker.asked(BATCH)
    await clock.elapse(1)
    results = [await each for each in waiting]

    assert bodies(broker) == [[b"0", b"1", b"2", b"3", b"4"]]
    assert [result.offset_message_id for result in results] == [f"OFFSET-{number}" for number in range(5)]
    assert [result.queue_offset for result in results] == [70, 71, 72, 73, 74]
    sent_keys = [part.property_text.decode() for part in decode_batch(broker.asked(BATCH)[0].body)]
    assert all(result.message_id in text for result, text in zip(results, sent_keys, strict=True))
    assert len({result.message_id for result in results}) == 5


@pytest.mark.feature("K20")
async def test_awaited_sends_join_the_same_batch(
    producer: Producer, broker: ScriptedServer, clock: ManualClock
) -> None:
    """Callers that wait and callers that do not travel together."""
    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(producer.send(message(b"%d" % number))) for number in range(3)]
        waiting_no_more = producer.send_nowait(message(b"3"))
        await clock.elapse(10)
        await waiting_no_more
    assert {each.result().queue for each in waiting} == {waiting_no_more.result().queue}
    assert [sorted(batch) for batch in bodies(broker)] == [[b"0", b"1", b"2", b"3"]]


@pytest.mark.feature("K20")
async def test_batches_are_kept_apart(producer: Producer, broker: ScriptedServer, clock: ManualClock) -> None:
    """Another topic, queue, tag or wait flag is another batch."""
    queues = await producer.fetch_queues("T")
    calls: list[tuple[Message, Any]] = [
        (message(b"plain"), None),
        (message(b"plain"), None),
        (Message("U", b"topic"), None),
        (message(b"tag", tags="A"), None),
        (message(b"flag", waits_for_store=False), None),
        (message(b"queue"), queues[1]),
    ]
    waiting = [producer.send_nowait(each, queue=queue) for each, queue in calls]
    await clock.elapse(10)
    for each in waiting:
        await each
    assert sorted(bodies(broker)) == [[b"flag"], [b"plain", b"plain"], [b"queue"], [b"tag"], [b"topic"]]
    assert waiting[5].result().queue == queues[1]


@pytest.mark.feature("K20")
async def test_selected_queue_is_where_the_batch_goes(
    producer: Producer, broker: ScriptedServer, clock: ManualClock
) -> None:
    """The selector is asked for each message, and those of one queue travel together."""
    waiting = [producer.send_nowait(message(b"%d" % key), selector=select_by_hash, arg=key) for key in range(4)]
    await clock.settle()
    await clock.elapse(10)
    assert [(await each).queue.queue_id for each in waiting] == [0, 1, 0, 1]
    assert sorted(bodies(broker)) == [[b"0", b"2"], [b"1", b"3"]]


@pytest.mark.feature("K20")
async def test_batch_leaves_when_it_is_full(producer: Producer, broker: ScriptedServer) -> None:
    """No batch is above 32 KiB, with heads and properties; the last one waits for its time or the end."""
    waiting = [producer.send_nowait(message(b"x" * 1000)) for _ in range(100)]
    await broker.wait_asked(BATCH, 3)
    sizes = [len(command.body) for command in broker.asked(BATCH)]
    assert all(31 * 1024 < size <= 32 * 1024 for size in sizes)
    assert not all(each.done() for each in waiting)


@pytest.mark.feature("K20")
@pytest.mark.parametrize(
    "alone",
    [
        message(delay_level=1),
        message(delay_ms=1),
        message(deliver_at_ms=1),
        message(b"x" * 32 * 1024),
        message(properties={"PGROUP": "g"}),
        message(properties={"MSG_TYPE": "reply"}),
        Message("%RETRY%g", b"x"),
    ],
    ids=["level", "delay", "instant", "large", "transaction", "reply", "retry"],
)
async def test_message_that_takes_part_in_no_batch_is_sent_at_once(
    producer: Producer, broker: ScriptedServer, alone: Message
) -> None:
    """Delays, retry topics, transactions and bodies that fill a batch are requests of their own."""
    await producer.send(alone)
    assert (len(broker.asked(SEND)) + len(broker.asked(REPLY)), len(broker.asked(BATCH))) == (1, 0)


@pytest.mark.feature("K20")
async def test_time_limit_of_its_own_is_kept(producer: Producer, broker: ScriptedServer) -> None:
    """A send with ``timeout_ms`` does not wait for a batch, as in Java."""
    await producer.send(message(), timeout_ms=1000)
    assert len(broker.asked(SEND)) == 1


@pytest.mark.feature("K20")
async def test_nothing_is_held_above_the_total(
    cluster: ScriptedCluster, broker: ScriptedServer, clock: ManualClock
) -> None:
    """While as much is on its way as may be, sends go by themselves; later they are batches again."""
    broker.answers[BATCH] = silent
    settings = ProducerSettings(auto_batch=True, batch_total_bytes=100)
    async with Producer("pg", cluster.nameserver.address, settings=settings, clock=clock) as producer:
        await producer.fetch_queues("T")
        held = producer.send_nowait(message(b"x" * 100))
        await clock.elapse(10)
        await broker.wait_asked(BATCH)
        await producer.send(message())
        assert len(broker.asked(SEND)) == 1
        await clock.elapse(3000)
        assert held.done()
        broker.answers[BATCH] = stored_one_by_one
        again = producer.send_nowait(message())
        await clock.elapse(10)
        await again
    assert len(broker.asked(SEND)) == 1
    assert isinstance(held.exception(), Exception)


@pytest.mark.feature("K20")
async def test_batch_is_filled_to_the_last_byte(
    cluster: ScriptedCluster, broker: ScriptedServer, clock: ManualClock
) -> None:
    """Two messages of one size fit a batch of twice that size, with their heads; into one byte less they do not."""
    async with Producer("pg", cluster.nameserver.address, settings=ON, clock=clock) as producer:
        alone = producer.send_nowait(message(b"x" * 10))
        await clock.elapse(10)
        await alone
        size = len(broker.asked(BATCH)[0].body)
    for spare_bytes in (0, -1):
        settings = ProducerSettings(auto_batch=True, batch_bytes=2 * size + spare_bytes)
        async with Producer("pg", cluster.nameserver.address, settings=settings, clock=clock) as producer:
            for _ in range(2):
                producer.send_nowait(message(b"x" * 10))
    assert [len(batch) for batch in bodies(broker)] == [1, 2, 1, 1]


@pytest.mark.feature("K20")
async def test_failure_is_that_of_all(producer: Producer, broker: ScriptedServer, clock: ManualClock) -> None:
    """A refused batch fails each of its sends, and the next batch is not touched by it."""
    broker.answers[BATCH] = refused(ResponseCode.MESSAGE_ILLEGAL, "no")
    waiting = [producer.send_nowait(message()) for _ in range(3)]
    await clock.elapse(10)
    for each in waiting:
        with pytest.raises(ResponseError, match="no"):
            await each
    broker.answers[BATCH] = stored_one_by_one
    after = producer.send_nowait(message())
    await clock.elapse(10)
    assert (await after).queue_offset == 70


@pytest.mark.feature("K20")
async def test_mistake_fails_its_own_send_alone(producer: Producer, broker: ScriptedServer, clock: ManualClock) -> None:
    """A message that cannot be sent is refused when it is handed over, and not with its batch."""
    good = producer.send_nowait(message(b"good"))
    with pytest.raises(ValueError, match="body is empty"):
        producer.send_nowait(message(b""))
    with pytest.raises(ValueError, match="neither may be blank"):
        producer.send_nowait(message(properties={"a": ""}))
    with pytest.raises(TypeError, match="takes a Message"):
        await producer.send("x")  # pyright: ignore[reportArgumentType] # the mistake
    await clock.elapse(10)
    await good
    assert bodies(broker) == [[b"good"]]


@pytest.mark.feature("K20")
async def test_caller_that_gives_up_in_time_sends_nothing(
    producer: Producer, broker: ScriptedServer, clock: ManualClock
) -> None:
    """Who is cancelled before the batch leaves is left out; a batch of none is not sent."""
    lonely = producer.send_nowait(message(tags="lonely"))
    kept, dropped = producer.send_nowait(message(b"kept")), producer.send_nowait(message(b"dropped"))
    lonely.cancel()
    dropped.cancel()
    await clock.elapse(10)
    assert (await kept).offset_message_id == "OFFSET-0"
    assert bodies(broker) == [[b"kept"]]


@pytest.mark.feature("K20")
async def test_batch_that_is_one_entry_shares_its_offset_id(
    producer: Producer, broker: ScriptedServer, clock: ManualClock
) -> None:
    """A broker that keeps a batch whole answers with one id: all callers get it, each with its own place."""
    broker.answers[BATCH] = stored
    waiting = [producer.send_nowait(message()) for _ in range(2)]
    await clock.elapse(10)
    results = [await each for each in waiting]
    assert len({result.offset_message_id for result in results}) == 1
    assert [result.queue_offset for result in results] == [7, 8]


@pytest.mark.feature("K20")
async def test_closing_sends_what_is_held(cluster: ScriptedCluster, broker: ScriptedServer, clock: ManualClock) -> None:
    """The batch leaves at once, its callers get their results, and nobody joins it any more."""
    async with Producer("pg", cluster.nameserver.address, settings=ON, clock=clock) as producer:
        waiting = [producer.send_nowait(message()) for _ in range(3)]
    assert [each.result().queue_offset for each in waiting] == [70, 71, 72]
    with pytest.raises(ClientStateError, match="is closed"):
        producer.send_nowait(message())


@pytest.mark.feature("K20")
async def test_closing_waits_for_sends_that_have_no_queue_yet(
    cluster: ScriptedCluster, broker: ScriptedServer, clock: ManualClock
) -> None:
    """A send whose selector was not asked when closing began is sent by itself."""
    async with Producer("pg", cluster.nameserver.address, settings=ON, clock=clock) as producer:
        waiting = producer.send_nowait(message(), selector=select_by_hash, arg=1)
    assert waiting.result().queue.queue_id == 1
    assert (len(broker.asked(SEND)), len(broker.asked(BATCH))) == (1, 0)


@pytest.mark.feature("K20")
async def test_results_name_the_places_of_the_messages(address: str) -> None:
    """On a real broker messages of all sizes are found at the offsets that their own callers were told."""

    def make(number: int) -> Message:
        return Message("T", b"%d " % number + bytes(number * 997 % 40_000), tags="abc"[number % 3], keys=str(number))

    async with Producer("pg", address, settings=ON) as producer, PullConsumer("cg", address) as consumer:
        waiting = [producer.send_nowait(make(number)) for number in range(300)]
        results: list[SendResult] = [await each for each in waiting]
        assert len({result.offset_message_id for result in results}) == 300
        assert len({(result.queue, result.queue_offset) for result in results}) == 300
        for number in (0, 1, 150, 298, 299):
            result, sent = results[number], make(number)
            await consumer.assign([result.queue])
            await consumer.seek(result.queue, result.queue_offset)
            got = (await consumer.poll())[0]
            assert (got.body, got.tags, got.keys) == (sent.body, sent.tags, (str(number),))
            assert (got.message_id, got.offset_message_id) == (result.message_id, result.offset_message_id)
