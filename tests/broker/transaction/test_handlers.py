"""Whom a check asks, on connections in memory."""

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest
from memory_connection import MemoryTransport, connect_in_memory
from stores import HOST, new_record

from rocketlet.broker.group.members import Client, Members
from rocketlet.broker.transaction.checks import CheckRequest
from rocketlet.broker.transaction.half_messages import half_of
from rocketlet.broker.transaction.handlers import TransactionCheckSender
from rocketlet.common.record import decode_record
from rocketlet.remoting.codec.frames import FrameParser
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.transport.connection import Connection, RequestHandlers
from rocketlet.store.consumequeue.appended import Appended
from rocketlet.testing.manual_clock import ManualClock

MEGABYTE = 1 << 20
NewProducer = Callable[[], MemoryTransport]


@pytest.fixture
def members() -> Members[Connection]:
    """Return nobody."""
    return Members(lambda: 0)


@pytest.fixture
async def new_producer(members: Members[Connection]) -> NewProducer:
    """Return a call that connects one more producer of the group."""
    clock = ManualClock()

    def connect() -> MemoryTransport:
        connection, transport = connect_in_memory(RequestHandlers(), clock)
        members.join_producer("g", Client("c", "JAVA", 0), connection, 0)
        return transport

    return connect


def request(**properties: str) -> CheckRequest:
    """Return a request about a half message of the group."""
    copy = half_of(new_record("T", 3, b"half", UNIQ_KEY="k", PGROUP="g", **properties))
    place = Appended(512, 7, 100, copy.topic, 0, 0, 9, copy.property_text, None)
    return CheckRequest(copy, place, 8)


async def ask(members: Members[Connection], transports: list[MemoryTransport], count: int) -> Counter[int]:
    """Ask so many times, and return how often each was asked."""
    sender, asked = TransactionCheckSender(members, "broker-a"), Counter[int]()
    for _ in range(count):
        sender.ask(request(), HOST)
        await asyncio.sleep(0)  # frames are written at the end of a turn of the loop
        for number, transport in enumerate(transports):
            asked[number] += bool(transport.last_write)
            transport.last_write = b""
    return asked


async def test_producers_are_asked_in_turn(members: Members[Connection], new_producer: NewProducer) -> None:
    """Of three each is asked a third of the questions, one after the other in the order in which they came."""
    transports = [new_producer() for _ in range(3)]
    assert await ask(members, transports, 9) == {0: 3, 1: 3, 2: 3}
    assert await ask(members, transports, 1) == {0: 0, 1: 1, 2: 0}
    assert await ask(members, transports, 2) == {0: 0, 1: 1, 2: 1}


async def test_who_does_not_read_is_passed_over(members: Members[Connection], new_producer: NewProducer) -> None:
    """A producer with more than a megabyte unsent is asked nothing while another is there, and something if none is."""
    transports = [new_producer() for _ in range(3)]
    transports[1].unsent_bytes = MEGABYTE + 1
    asked = await ask(members, transports, 9)
    assert (asked[1], asked[0] + asked[2]) == (0, 9)
    for transport in transports:
        transport.unsent_bytes = MEGABYTE + 1
    assert (await ask(members, transports, 9)).total() == 9


async def test_request_is_a_record_of_its_own_topic(members: Members[Connection], new_producer: NewProducer) -> None:
    """Its header names the half message, its body is that message, its place and the time it was stored at first."""
    transport = new_producer()
    TransactionCheckSender(members, "broker-a").ask(request(TAGS="a"), HOST)
    await transport.has_written.wait()
    (command,) = FrameParser().feed(transport.last_write)
    assert (command.code, command.is_oneway) == (RequestCode.CHECK_TRANSACTION_STATE, True)
    assert command.ext == {
        "topic": "RMQ_SYS_TRANS_HALF_TOPIC",
        "tranStateTableOffset": "7",
        "commitLogOffset": "512",
        "msgId": "k",
        "transactionId": "k",
        "offsetMsgId": "7F00000100002A9F0000000000000200",
        "bname": "broker-a",
    }
    record = decode_record(command.body)
    told = record.topic, record.queue_id, record.queue_offset, record.log_offset, record.stored_at_ms
    assert (told, bytes(record.body)) == (("T", 3, 7, 512, 8), b"half")
    assert record.properties == request(TAGS="a").copy.properties


async def test_who_may_not_see_the_topic_is_not_asked(
    members: Members[Connection], new_producer: NewProducer, caplog: pytest.LogCaptureFixture
) -> None:
    """Another one is, each time; where there is nobody else nobody is, which is said once a round."""
    transports = [new_producer() for _ in range(3)]
    entitled = {list(members.producer_group("g"))[2]: "T"}
    sender = TransactionCheckSender(
        members, "broker-a", may_be_asked=lambda producer, topic: entitled.get(producer) == topic
    )
    for _ in range(6):
        sender.ask(request(), HOST)
    await transports[2].has_written.wait()
    assert [len(FrameParser().feed(transport.last_write)) for transport in transports] == [0, 0, 6]
    assert (sender.asked_count, caplog.text) == (6, "")
    entitled.clear()
    for _ in range(2):
        sender.ask(request(), HOST)
    assert sender.asked_count == 6
    assert caplog.text.count("no producer of group g is connected that may send to its topic: transaction k stays") == 1
