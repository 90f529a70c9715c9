"""How far a consumer has come."""

import asyncio
import pathlib

import pytest
from scripted_cluster import QUEUE, RETRY_QUEUE, ScriptedCluster, offset_of, refused

from rocketlet.client.group.broker_requests import BrokerRequests
from rocketlet.client.group.offsets import (
    GroupOffsets,
    LocalOffsetFile,
    LocalOffsets,
    format_offsets,
    offset_file_of,
    start_rule,
)
from rocketlet.client.session.session import Session
from rocketlet.client.session.settings import ConsumeFrom
from rocketlet.common.codes import ResponseCode
from rocketlet.common.errors import ConfigError, ResponseError
from rocketlet.common.message import MessageQueue
from rocketlet.remoting.codec.command import decode_header
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.headers.offset import CommitOffsetHeader, SearchOffsetHeader

NOW_MS = 1_700_000_000_000


@pytest.mark.feature("B19", "B20")
@pytest.mark.parametrize("queue", [QUEUE, RETRY_QUEUE], ids=["topic", "retry topic"])
@pytest.mark.parametrize("consume_from", ConsumeFrom)
@pytest.mark.parametrize("stored", [None, 0, 33])
async def test_start_is_what_is_stored_else_by_the_rule(
    cluster: ScriptedCluster, consume_from: ConsumeFrom, stored: int | None, queue: MessageQueue
) -> None:
    """The matrix of from-where and stored offset, Java's ``computePullFromWhere``."""
    broker = await cluster.add_broker("broker-a")
    cluster.routes[queue.topic] = {"broker-a": 1}
    missing = refused(ResponseCode.QUERY_NOT_FOUND)
    broker.answers[RequestCode.QUERY_CONSUMER_OFFSET] = missing if stored is None else lambda _: offset_of(stored)
    broker.answers[RequestCode.GET_MAX_OFFSET] = lambda _: offset_of(99)
    broker.answers[RequestCode.SEARCH_OFFSET_BY_TIMESTAMP] = lambda _: offset_of(55)

    async with Session(cluster.nameserver.address, None) as session:
        await session.route(queue.topic)
        offsets = GroupOffsets("g", BrokerRequests(session), start_rule(consume_from, 1234, NOW_MS))
        start = await offsets.find_start(queue)

    by_rule = {
        (ConsumeFrom.FIRST, QUEUE): 0,
        (ConsumeFrom.FIRST, RETRY_QUEUE): 0,
        (ConsumeFrom.LAST, QUEUE): 99,
        (ConsumeFrom.LAST, RETRY_QUEUE): 0,
        (ConsumeFrom.TIMESTAMP, QUEUE): 55,
        (ConsumeFrom.TIMESTAMP, RETRY_QUEUE): 99,
    }
    assert start == (by_rule[consume_from, queue] if stored is None else stored)
    searches = broker.asked(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
    assert [decode_header(SearchOffsetHeader, each).at_ms for each in searches] in ([], [1234])


@pytest.mark.feature("B19")
async def test_start_is_unknown_when_the_broker_cannot_say(cluster: ScriptedCluster) -> None:
    """An error is not taken for a new group: the queue must not jump to its end."""
    broker = await cluster.add_broker("broker-a")
    cluster.routes["T"] = {"broker-a": 1}
    broker.answers[RequestCode.QUERY_CONSUMER_OFFSET] = refused(ResponseCode.SYSTEM_ERROR)

    async with Session(cluster.nameserver.address, None) as session:
        await session.route("T")
        offsets = GroupOffsets("g", BrokerRequests(session), start_rule(ConsumeFrom.LAST, None, NOW_MS))
        with pytest.raises(ResponseError):
            await offsets.find_start(QUEUE)


@pytest.mark.parametrize("consume_from", [ConsumeFrom.LAST, ConsumeFrom.TIMESTAMP])
async def test_start_is_asked_of_the_slave_while_the_master_is_gone(
    cluster: ScriptedCluster, consume_from: ConsumeFrom
) -> None:
    """What is stored, and by the rule without; a queue whose master is gone is not left alone."""
    cluster.routes["T"] = {"broker-a": 1}
    await cluster.add_broker("broker-a")
    slave = await cluster.add_slave("broker-a")
    slave.answers[RequestCode.GET_MAX_OFFSET] = slave.answers[RequestCode.SEARCH_OFFSET_BY_TIMESTAMP] = lambda _: (
        offset_of(7)
    )
    cluster.gone.add("broker-a")
    async with Session(cluster.nameserver.address, None) as session:
        await session.route("T")
        offsets = GroupOffsets("g", BrokerRequests(session), start_rule(consume_from, None, NOW_MS))
        slave.answers[RequestCode.QUERY_CONSUMER_OFFSET] = lambda _: offset_of(5)
        assert await offsets.find_start(QUEUE) == 5
        slave.answers[RequestCode.QUERY_CONSUMER_OFFSET] = refused(ResponseCode.QUERY_NOT_FOUND)
        assert await offsets.find_start(QUEUE) == 7


def test_consuming_from_a_timestamp_begins_half_an_hour_ago_unless_set() -> None:
    """Java's default for ``consumeTimestamp``."""
    assert start_rule(ConsumeFrom.TIMESTAMP, None, NOW_MS).at_ms == NOW_MS - 1_800_000
    assert start_rule(ConsumeFrom.TIMESTAMP, 5, NOW_MS).at_ms == 5


async def test_persist_stores_each_queue_at_its_broker_and_survives_a_lost_one(cluster: ScriptedCluster) -> None:
    """A broker that is gone does not keep the others from getting their offsets."""
    gone, here = await cluster.add_broker("broker-a"), await cluster.add_broker("broker-b")
    cluster.routes["T"] = {"broker-a": 1, "broker-b": 1}
    async with Session(cluster.nameserver.address, None) as session:
        await session.route("T")
        offsets = GroupOffsets("g", BrokerRequests(session), start_rule(ConsumeFrom.LAST, None, NOW_MS))
        other = QUEUE._replace(broker_name="broker-b")
        offsets.table.seek(QUEUE, 5)
        offsets.table.seek(other, 6)
        await gone.close()
        await offsets.persist([QUEUE, other, RETRY_QUEUE])

        [command] = await here.wait_asked(RequestCode.UPDATE_CONSUMER_OFFSET)
    header = decode_header(CommitOffsetHeader, command)
    assert (header.consumer_group, header.topic, header.queue_id, header.commit_offset) == ("g", "T", 0, 6)
    assert command.is_oneway


OTHER = MessageQueue("T", "broker-a", 10)
JAVA_TEXT = (
    b'{\n\t"offsetTable":{{\n\t\t\t"brokerName":"broker-a",\n\t\t\t"queueId":0,\n\t\t\t"topic":"T"\n\t\t}:7\n\t}\n}'
)


@pytest.fixture
def file(tmp_path: pathlib.Path) -> LocalOffsetFile:
    """Return a file in a directory that does not exist yet."""
    return LocalOffsetFile(tmp_path / "a" / "b" / "offsets.json")


@pytest.mark.feature("B21")
def test_path_is_that_of_java(tmp_path: pathlib.Path) -> None:
    """Client id without process id, then the group; the home directory unless told otherwise."""
    file = offset_file_of(str(tmp_path), ("10.0.0.1", "DEFAULT", ""), "cg")
    assert file.path == tmp_path / "10.0.0.1@DEFAULT" / "cg" / "offsets.json"
    at_home = offset_file_of(None, ("10.0.0.1", "one", "unit"), "cg")
    assert at_home.path == pathlib.Path.home() / ".rocketmq_offsets" / "10.0.0.1@one@unit" / "cg" / "offsets.json"


@pytest.mark.feature("B21")
def test_text_has_queues_as_keys() -> None:
    """As fastjson writes them, sorted, one in a line."""
    assert format_offsets({OTHER: 9, QUEUE: 7}) == (
        b'{\n\t"offsetTable":{\n'
        b'\t\t{"brokerName":"broker-a","queueId":0,"topic":"T"}:7,\n'
        b'\t\t{"brokerName":"broker-a","queueId":10,"topic":"T"}:9\n'
        b"\t}\n}"
    )


def local_offsets(file: LocalOffsetFile) -> LocalOffsets:
    """Return offsets that are kept in a file."""
    rule = start_rule(ConsumeFrom.FIRST, None, NOW_MS)
    return LocalOffsets("g", BrokerRequests(Session("127.0.0.1:1")), rule, file)


@pytest.mark.feature("B21")
async def test_local_offsets_are_written_when_they_have_changed(file: LocalOffsetFile) -> None:
    """Those of queues that have one; what is stored already is not written again, and a new start finds it."""
    local = local_offsets(file)
    await local.persist([QUEUE])
    assert await asyncio.to_thread(file.path.exists) is False
    local.table.seek(QUEUE, 5)
    await local.persist([QUEUE, OTHER])
    assert await asyncio.to_thread(file.read) == {QUEUE: 5}
    await asyncio.to_thread(file.path.unlink)
    await local.persist([QUEUE, OTHER])
    assert await asyncio.to_thread(file.path.exists) is False
    local.table.seek(OTHER, 6)
    await local.persist_now([QUEUE, OTHER])
    assert await asyncio.to_thread(file.read) == {QUEUE: 5, OTHER: 6}
    assert [await local_offsets(file).find_start(queue) for queue in (QUEUE, OTHER, RETRY_QUEUE)] == [5, 6, 0]


def test_nothing_is_stored_at_first(file: LocalOffsetFile) -> None:
    """A file that is not there, and one that is empty, hold no offsets."""
    assert file.read() == {}
    file.path.parent.mkdir(parents=True)
    file.path.touch()
    assert file.read() == {}


def test_offsets_of_other_queues_stay(file: LocalOffsetFile) -> None:
    """Two consumers of one host may share a file; the text before is kept beside it."""
    file.write({QUEUE: 1})
    before = file.path.read_bytes()
    file.write({OTHER: 2})
    assert file.read() == {QUEUE: 1, OTHER: 2}
    file.write({QUEUE: 3})
    assert file.read() == {QUEUE: 3, OTHER: 2}
    assert file.path.with_name("offsets.json.bak").read_bytes() != before
    assert sorted(path.name for path in file.path.parent.iterdir()) == ["offsets.json", "offsets.json.bak"]


def test_file_of_java_is_read(file: LocalOffsetFile) -> None:
    """Its text is spread over lines."""
    file.path.parent.mkdir(parents=True)
    file.path.write_bytes(JAVA_TEXT)
    assert file.read() == {QUEUE: 7}


@pytest.mark.parametrize("damage", [b"{", b'{"offsetTable":[1]}', b"\xff"])
def test_damaged_file_gives_way_to_the_one_before(file: LocalOffsetFile, damage: bytes) -> None:
    """Also for the next write; with both damaged, it is said what to do."""
    file.write({QUEUE: 1})
    file.write({QUEUE: 2})
    file.path.write_bytes(damage)
    assert file.read() == {QUEUE: 1}
    backup = file.path.with_name("offsets.json.bak")
    backup.write_bytes(damage)
    with pytest.raises(ConfigError, match="remove it to start anew"):
        file.read()
    backup.unlink()
    with pytest.raises(ConfigError, match=r"has no \.bak"):
        file.read()


def test_missing_file_gives_way_to_the_one_before(file: LocalOffsetFile) -> None:
    """A crash between the two renames leaves only the .bak."""
    file.write({QUEUE: 1})
    file.write({QUEUE: 2})
    file.path.unlink()
    assert file.read() == {QUEUE: 1}
