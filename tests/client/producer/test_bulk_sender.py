"""A great many messages, sent until they are stored: against scripted brokers, and with a clock that jumps."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from eager_clock import EagerClock
from scripted_cluster import Answer, ScriptedCluster, ScriptedServer, refused, stored

from rocketlet.client import Message, Producer, ProducerSettings
from rocketlet.client.producer.bulk_sender import Batcher, BulkLimits, BulkSender, OutboundMessage, RateLimiter
from rocketlet.common.codes import ResponseCode
from rocketlet.common.errors import ResponseError, RouteNotFoundError, SendRefusedError
from rocketlet.common.message import MessageQueue
from rocketlet.common.record import decode_batch
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.transport.connection import Reply

BATCH = RequestCode.SEND_BATCH_MESSAGE
ONE = RequestCode.SEND_MESSAGE_V2


@pytest.fixture
async def broker(cluster: ScriptedCluster) -> ScriptedServer:
    """Return the broker of topic T, which has four queues."""
    cluster.routes["T"] = {"broker-a": 4}
    return await cluster.add_broker("broker-a", {BATCH: stored})


@pytest.fixture
def clock() -> EagerClock:
    """Return the clock of the sender; the producer has a real one."""
    return EagerClock()


@asynccontextmanager
async def pouring(cluster: ScriptedCluster, clock: EagerClock, **more: object) -> AsyncGenerator[BulkSender]:
    """Open a sender in which every failure of the producer is its own to repeat."""
    settings = ProducerSettings(retries=0)
    limits = BulkLimits(in_flight=2, batch_messages=3, patience_ms=60_000)
    async with (
        Producer("pg", cluster.nameserver.address, settings=settings) as producer,
        BulkSender(producer, limits, clock=clock, **more) as sender,  # type: ignore[arg-type] # what the test gives
    ):
        yield sender


def outbound(*bodies: bytes, key: str | None = None) -> list[OutboundMessage]:
    """Return messages with numbers from 0."""
    return [OutboundMessage(Message("T", body), number, key) for number, body in enumerate(bodies)]


def first(*answers: Answer) -> Answer:
    """Return answers one after the other, and then that all is stored."""
    left = list(answers)

    def answer(command: Command) -> Reply:
        return left.pop(0)(command) if left else stored(command)

    return answer


async def test_everything_is_stored_when_it_is_drained(
    cluster: ScriptedCluster, broker: ScriptedServer, clock: EagerClock
) -> None:
    """Seven messages are three requests, and afterwards their handle is done."""
    async with pouring(cluster, clock) as sender:
        handle = await sender.put(outbound(*[b"x"] * 7))
        await sender.drain()
        assert (handle.is_done, sender.stored, sender.repeats) == (True, 7, 0)
    assert (len(broker.asked(BATCH)), len(broker.asked(ONE))) == (2, 1)


async def test_sender_needs_no_limits_of_its_own(cluster: ScriptedCluster, broker: ScriptedServer) -> None:
    """Unless told otherwise it puts more into a request than ten messages."""
    async with Producer("pg", cluster.nameserver.address) as producer, BulkSender(producer) as sender:
        await sender.put(outbound(*[b"x"] * 11))
        await sender.drain()
    assert (sender.stored, len(broker.asked(BATCH)), len(broker.asked(ONE))) == (11, 1, 0)


def not_flushed(command: Command) -> Command:
    """Answer a send: it was stored, but is not on disk."""
    return stored(command, ResponseCode.FLUSH_DISK_TIMEOUT)


@pytest.mark.parametrize("answer", [refused(ResponseCode.SYSTEM_BUSY), not_flushed], ids=["busy", "not flushed"])
async def test_what_may_heal_is_tried_again(
    cluster: ScriptedCluster, broker: ScriptedServer, clock: EagerClock, answer: Answer
) -> None:
    """A batch is repeated after pauses that double, and counted once."""
    broker.answers[ONE] = first(answer, answer, answer)
    async with pouring(cluster, clock) as sender:
        await sender.put(outbound(b"x"))
        await sender.drain()
    assert (sender.stored, sender.repeats, clock.pauses) == (1, 3, [100, 200, 400])


async def test_patience_ends(cluster: ScriptedCluster, broker: ScriptedServer, clock: EagerClock) -> None:
    """After a minute the last failure is the outcome, for whoever puts or drains; pauses were 5 s at most."""
    broker.answers[ONE] = refused(ResponseCode.SYSTEM_BUSY, "never")
    async with pouring(cluster, clock) as sender:
        await sender.put(outbound(b"x"))
        with pytest.raises(ResponseError, match="never"):
            await sender.drain()
        with pytest.raises(ResponseError, match="never"):
            await sender.put(outbound(b"y"))
    assert (sum(clock.pauses), max(clock.pauses)) == (60_000, 5_000)


async def test_what_does_not_heal_fails_at_once(
    cluster: ScriptedCluster, broker: ScriptedServer, clock: EagerClock
) -> None:
    """A broker that forbids writing is asked once."""
    broker.answers[ONE] = refused(ResponseCode.NO_PERMISSION, "forbidden")
    async with pouring(cluster, clock) as sender:
        await sender.put(outbound(b"x"))
        with pytest.raises(ResponseError, match="forbidden"):
            await sender.drain()
    assert (len(broker.asked(ONE)), clock.pauses) == (1, [])


async def test_unknown_topic_is_waited_for_ten_seconds(cluster: ScriptedCluster, clock: EagerClock) -> None:
    """A broker that starts would have registered it by then; with a sharding key its queues are asked for first."""
    async with pouring(cluster, clock) as sender:
        with pytest.raises(RouteNotFoundError):
            await sender.put(outbound(b"x", key="a sharding key"))
        assert sum(clock.pauses) == 10_000
        await sender.put(outbound(b"x"))
        with pytest.raises(RouteNotFoundError):
            await sender.drain()
    assert sum(clock.pauses) == 20_000


@pytest.mark.parametrize("is_told", [False, True])
async def test_only_the_letter_to_blame_is_refused(
    cluster: ScriptedCluster, broker: ScriptedServer, clock: EagerClock, *, is_told: bool
) -> None:
    """An empty body makes the batch impossible: its other messages are sent one by one, its own number is named."""
    refusals: list[SendRefusedError] = []
    async with pouring(cluster, clock, on_refused=refusals.append if is_told else None) as sender:
        await sender.put(outbound(b"x", b"", b"z", b"", b"") if is_told else outbound(b"x", b"", b"z"))
        if is_told:
            await sender.drain()
        else:
            with pytest.raises(SendRefusedError, match="message 1 cannot be sent: body is empty"):
                await sender.drain()
    assert [command.body for command in broker.asked(ONE)] == ([b"x", b"z"] if is_told else [b"x"])
    assert (len(refusals), sender.refused) == ((3, 3) if is_told else (0, 0))


async def test_broker_that_refuses_a_parcel_gets_its_letters_one_by_one(
    cluster: ScriptedCluster, broker: ScriptedServer, clock: EagerClock
) -> None:
    """What the broker calls illegal may be one message of several."""
    broker.answers[BATCH] = refused(ResponseCode.MESSAGE_ILLEGAL)
    broker.answers[ONE] = lambda sent: (
        refused(ResponseCode.MESSAGE_ILLEGAL)(sent) if sent.body == b"y" else stored(sent)
    )
    refusals: list[SendRefusedError] = []
    async with pouring(cluster, clock, on_refused=refusals.append) as sender:
        await sender.put(outbound(b"x", b"y", b"z"))
        await sender.drain()
    assert ([refusal.number for refusal in refusals], sender.stored) == ([1], 2)


async def test_sharding_key_keeps_its_order_over_failures(
    cluster: ScriptedCluster, broker: ScriptedServer, clock: EagerClock
) -> None:
    """The second batch of a queue is not begun before the first is stored, also when that is refused twice."""
    broker.answers[BATCH] = first(refused(ResponseCode.SYSTEM_BUSY), refused(ResponseCode.SYSTEM_BUSY))
    async with pouring(cluster, clock) as sender:
        await sender.put(outbound(b"a", b"b", b"c", b"d", b"e", b"f", key="k"))
        await sender.drain()
    bodies = [b"".join(bytes(part.body) for part in decode_batch(sent.body)) for sent in broker.asked(BATCH)]
    assert bodies == [b"abc", b"abc", b"abc", b"def"]


async def test_rate_spreads_the_requests(cluster: ScriptedCluster, broker: ScriptedServer, clock: EagerClock) -> None:
    """At 20 messages a second batches hold two, which leave 100 ms apart; a repetition takes nothing from the rate."""
    broker.answers[BATCH] = first(refused(ResponseCode.SYSTEM_BUSY))
    async with pouring(cluster, clock, rate_limiter=RateLimiter(20, clock)) as sender:
        await sender.put(outbound(*[b"x"] * 8))
        await sender.drain()
    assert sender.stored == 8
    assert len(broker.asked(BATCH)) == 5
    assert clock.now_ms() - EagerClock().now_ms() >= 300


QUEUES = [MessageQueue("T", "broker-a", number) for number in range(4)]


def pack(outbound: list[OutboundMessage]) -> list[list[int]]:
    """Return the numbers in each batch of at most 3 messages and 1000 bytes; 500 bytes are large."""
    return [[one.number for one in batch.outbound] for batch in Batcher(3, 1000, 500).pack(outbound, {"T": QUEUES})]


@pytest.mark.parametrize(
    ("messages", "batches"),
    [
        ([Message("T", b"x")] * 7, [[0, 1, 2], [3, 4, 5], [6]]),
        ([Message("T", bytes(400))] * 3, [[0, 1], [2]]),
        ([Message("T", bytes(400)), Message("T", bytes(400)), Message("T", bytes(200))], [[0, 1, 2]]),
        ([Message("T", bytes(400)), Message("T", bytes(400)), Message("T", bytes(201))], [[0, 1], [2]]),
        ([Message("T", bytes(400), properties={"p": "v" * 99})] * 3, [[0, 1], [2]]),
        ([Message("T", bytes(400), properties={"p": "v" * 100})] * 3, [[0], [1], [2]]),
        ([Message("T", bytes(499))] * 4, [[0, 1], [2, 3]]),
        ([Message("T", b"x"), Message("U", b"x"), Message("T", b"x")], [[1], [0, 2]]),
        ([Message("T", b"x"), Message("T", bytes(500)), Message("T", b"x")], [[0], [1], [2]]),
        ([Message("T", b"x"), Message("T", b"x", delay_level=1)], [[0], [1]]),
        ([Message("T", b"x"), Message("T", b"x", properties={"p": "v" * 9000})], [[0], [1]]),
        ([Message("%RETRY%g", b"x")] * 2, [[0], [1]]),
        ([], []),
    ],
    ids=[
        *("number", "bytes", "full", "too full", "full with properties", "too full with properties", "just not large"),
        *("topics", "large", "late", "properties", "retry", "none"),
    ],
)
def test_letters_travel_together_as_far_as_they_may(messages: list[Message], batches: list[list[int]]) -> None:
    """Number and bytes are limited; large and late messages and those of retry topics travel alone."""
    assert pack([OutboundMessage(message, number) for number, message in enumerate(messages)]) == batches


def test_properties_of_more_than_8_kib_travel_alone() -> None:
    """Names and values count, as characters."""
    for size, batches in ((8_191, 1), (8_192, 3)):
        outbound = [OutboundMessage(Message("T", b"x", properties={"p": "v" * size}), number) for number in range(3)]
        assert len(list(Batcher(3, 1 << 20, 500).pack(outbound, {}))) == batches


def test_letter_without_a_sharding_key_goes_to_the_next_queue() -> None:
    """Unless one is given the round decides, and so it does for topics of which no queue is known."""
    outbound = [OutboundMessage(Message("T", b"x"), 0), OutboundMessage(Message("U", b"x"), 1, "a key")]
    assert [batch.queue for batch in Batcher(3, 1000, 500).pack(outbound, {"T": QUEUES})] == [None, None]


def test_limits_of_a_bulk_sender_have_defaults() -> None:
    """Sixteen requests on their way, of 128 messages and 256 KiB at most, tried for two minutes."""
    limits = BulkLimits(in_flight=16, batch_messages=128, batch_bytes=262_144, patience_ms=120_000)
    assert BulkLimits() == limits


def test_letters_with_a_queue_of_their_own_go_there() -> None:
    """Also where a key would choose another one; those of one queue keep their order."""
    one, other = MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)
    messages = [
        OutboundMessage(Message("T", b"x"), number, "key", queue=other if number % 2 else one) for number in range(4)
    ]
    found = [
        (batch.queue, [each.number for each in batch.outbound])
        for batch in Batcher(128, 1 << 20, 4096).pack(messages, {"T": [one]})
    ]
    assert found == [(one, [0, 2]), (other, [1, 3])]


def test_letters_of_a_sharding_key_have_one_queue_and_keep_their_order() -> None:
    """The queue is that of the key's hash, and a large one does not overtake those before it."""
    bodies = [b"x", b"x", bytes(500), b"x"]
    outbound = [OutboundMessage(Message("T", body), number, "one key") for number, body in enumerate(bodies)]
    batches = list(Batcher(3, 1000, 500).pack(outbound, {"T": QUEUES}))
    assert [[one.number for one in batch.outbound] for batch in batches] == [[0, 1], [2], [3]]
    assert len({batch.queue for batch in batches}) == 1


@pytest.mark.parametrize(
    ("rate", "counts", "pauses"),
    [(10, [1, 1, 1], [100, 100]), (10, [20, 1], [2000]), (0.5, [1, 1], [2000]), (3, [1, 1, 1], [334, 333])],
)
async def test_messages_leave_evenly(rate: float, counts: list[int], pauses: list[int]) -> None:
    """Each step waits until those before it have used up their share of the seconds, in whole milliseconds."""
    clock = EagerClock()
    rate_limiter = RateLimiter(rate, clock)
    for count in counts:
        await rate_limiter.wait_turn(count)
    assert clock.pauses == pauses


async def test_long_pause_is_not_made_up_for() -> None:
    """After a second of silence ten messages still need a second."""
    clock = EagerClock()
    rate_limiter = RateLimiter(10, clock)
    clock.advance(1000)
    for _ in range(11):
        await rate_limiter.wait_turn(1)
    assert sum(clock.pauses) == 1000


@pytest.mark.parametrize(("rate", "most"), [(0.1, 1), (10, 1), (250, 25)])
def test_steps_are_a_tenth_of_a_second(rate: float, most: int) -> None:
    """So many messages may leave at once, never none."""
    assert RateLimiter(rate, EagerClock()).most_at_once == most
