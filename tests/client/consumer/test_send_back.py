"""The ways back of messages that failed: to their broker, else to the retry topic."""

import dataclasses
import zlib

import pytest
from msgspec.structs import asdict
from received import received
from scripted_cluster import Answer, ScriptedCluster, refused

from rocketlet.client import Session
from rocketlet.client.consumer.send_back import MessageReturner
from rocketlet.common.codes import ResponseCode
from rocketlet.common.message import ReceivedMessage
from rocketlet.common.properties import parse_properties
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.headers.send import decode_send_header
from rocketlet.testing import ManualClock

SEND, BACK = RequestCode.SEND_MESSAGE_V2, RequestCode.CONSUMER_SEND_MSG_BACK
RETRY_TOPIC = "%RETRY%g"


async def send_back(cluster: ScriptedCluster, message: ReceivedMessage, max_retries: int = 16) -> bool:
    """Hand a message back whose broker does not take it back."""
    async with Session(cluster.nameserver.address, ManualClock()) as session:
        return await MessageReturner("g", session, max_retries).send_back(message)


async def test_message_in_the_retry_topic_is_complete(cluster: ScriptedCluster) -> None:
    """It is the message that failed, with one attempt more and the delay of that attempt; a half message no more."""
    cluster.routes[RETRY_TOPIC] = {"broker-a": 1}
    broker = await cluster.add_broker("broker-a", {BACK: refused(ResponseCode.SYSTEM_ERROR)})
    properties = {"TRAN_MSG": "true", "KEYS": "k", "TAGS": "t"}
    assert await send_back(
        cluster, dataclasses.replace(received(5), reconsume_times=2, flag=7, properties=properties), 9
    )
    [sent] = broker.asked(SEND)
    header = asdict(decode_send_header(sent))
    assert parse_properties(header.pop("properties")) == {
        "KEYS": "k",
        "TAGS": "t",
        "ORIGIN_MESSAGE_ID": "id-5",
        "RETRY_TOPIC": "T",
        "RECONSUME_TIME": "3",
        "MAX_RECONSUME_TIMES": "9",
        "DELAY": "5",
    }
    assert header == {
        "producer_group": "CLIENT_INNER_PRODUCER",
        "topic": RETRY_TOPIC,
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 0,
        "sys_flag": 0,
        "born_at_ms": ManualClock().now_ms(),
        "flag": 7,
        "reconsume_times": 3,
        "unit_mode": False,
        "max_reconsume_times": 9,
        "batch": False,
        "broker_name": "broker-a",
    }
    assert sent.body == b"x"


@pytest.mark.parametrize(("size", "sys_flag"), [(4095, 0), (4096, 0x301)])
async def test_body_is_compressed_as_by_a_producer(cluster: ScriptedCluster, size: int, sys_flag: int) -> None:
    """From 4096 bytes on."""
    cluster.routes[RETRY_TOPIC] = {"broker-a": 1}
    broker = await cluster.add_broker("broker-a", {BACK: refused(ResponseCode.SYSTEM_ERROR)})
    assert await send_back(cluster, received(1, b"z" * size))
    [sent] = broker.asked(SEND)
    assert decode_send_header(sent).sys_flag == sys_flag
    assert (zlib.decompress(sent.body) if sys_flag else sent.body) == b"z" * size


@pytest.mark.parametrize(("brokers", "attempts"), [(1, 1), (2, 2), (3, 3), (5, 3)])
async def test_three_queues_are_tried_at_most(cluster: ScriptedCluster, brokers: int, attempts: int) -> None:
    """Each once; then nobody has the message."""
    names = [f"broker-{name}" for name in "abcde"[:brokers]]
    cluster.routes[RETRY_TOPIC] = dict.fromkeys(names, 1)
    answers: dict[int, Answer] = {BACK: refused(ResponseCode.SYSTEM_ERROR), SEND: refused(ResponseCode.SYSTEM_BUSY)}
    servers = [await cluster.add_broker(name, answers) for name in names]
    assert not await send_back(cluster, received(1))
    counts = [len(server.asked(SEND)) for server in servers]
    assert (sum(counts), max(counts)) == (attempts, 1)


@pytest.mark.parametrize("code", [10, 11, 12])
async def test_message_that_is_stored_somehow_is_not_sent_again(cluster: ScriptedCluster, code: int) -> None:
    """Not on disk, or not copied in time, is enough for a message that failed."""
    cluster.routes[RETRY_TOPIC] = {"broker-a": 3}
    answers: dict[int, Answer] = {BACK: refused(ResponseCode.SYSTEM_ERROR), SEND: lambda _: Command.response(code)}
    broker = await cluster.add_broker("broker-a", answers)
    assert await send_back(cluster, received(1))
    assert len(broker.asked(SEND)) == 1


async def test_slave_is_given_nothing_back(cluster: ScriptedCluster) -> None:
    """Without the master a message goes to the retry topic at once, where another broker takes it."""
    cluster.routes |= {"T": {"broker-a": 1}, RETRY_TOPIC: {"broker-a": 1, "broker-b": 1}}
    await cluster.add_broker("broker-a")
    slave, other = await cluster.add_slave("broker-a"), await cluster.add_broker("broker-b")
    cluster.gone.add("broker-a")
    async with Session(cluster.nameserver.address, ManualClock()) as session:
        await session.route("T")
        assert await MessageReturner("g", session, 16).send_back(received(1))
    assert (slave.asked(BACK), slave.asked(SEND), len(other.asked(SEND))) == ([], [], 1)


async def test_nowhere_to_send_to_is_a_failure(cluster: ScriptedCluster) -> None:
    """Neither without a route nor with one that has no queue is the message given away."""
    broker = await cluster.add_broker("broker-a", {BACK: refused(ResponseCode.SYSTEM_ERROR)})
    assert not await send_back(cluster, received(1))
    cluster.routes[RETRY_TOPIC] = {"broker-a": 0}
    assert not await send_back(cluster, received(1))
    assert broker.asked(SEND) == []
