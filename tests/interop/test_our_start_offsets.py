"""Where our push consumer begins, at our broker and at the official one.

A broker lets a new group begin at message 0 while it has that, whatever the group asks for. So the queue here has lost
its first messages with the first files of its log: now the rule of the consumer decides, and offsets can be too small.
"""

import asyncio
import bisect
import os
import pathlib
import shutil
import time
from collections.abc import AsyncGenerator, Callable

import pytest
from inbox import Inbox
from interop.servers import Server
from polling import ask_until_async
from raw_calls import open_caller
from real_broker import running_broker, running_nameserver
from subscribed import push_consumer

from rocketlet.client import (
    Admin,
    ConsumeFrom,
    Message,
    MessageQueue,
    Producer,
    ProducerSettings,
    ReceivedMessage,
    TopicSettings,
)
from rocketlet.common.codes import ResponseCode
from rocketlet.remoting.codec.request_codes import RequestCode

NewName = Callable[[], str]
StartServer = Callable[..., Server]
SETTINGS = {
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "400",
    "flushDiskType": "SYNC_FLUSH",  # a file goes only when it is on the disk
    "fileReservedTime": "1",
}
QUEUE = MessageQueue("T", "broker-a", 0)
COUNT = 120


async def make_store(root: pathlib.Path) -> None:
    """Write a store with a queue whose first messages are in files that have expired and gone."""
    async with (
        running_nameserver() as nameserver,
        running_broker(nameserver, root, settings=SETTINGS) as broker,
        Admin(nameserver.address) as admin,
        Producer("pg", nameserver.address) as producer,
        open_caller(broker.address) as caller,
    ):
        await admin.create_topic("T", TopicSettings(read_queues=1, write_queues=1))
        for _ in range(COUNT):
            await producer.send(Message("T", bytes(1_000)))
        long_ago_s = time.time() - 7_200
        for path in (root / "commitlog").iterdir():
            os.utime(path, (long_ago_s, long_ago_s))
        for code in (RequestCode.DELETE_EXPIRED_COMMITLOG, RequestCode.CLEAN_UNUSED_TOPIC):
            # The first is answered before anything is done; the second waits for what it began.
            assert (await caller.ask(code)).code == ResponseCode.SUCCESS


@pytest.fixture(scope="module")
def shortened_store(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Return a store with such a queue."""
    root = tmp_path_factory.mktemp("shortened") / "store"
    asyncio.run(make_store(root))
    return root


@pytest.fixture(scope="module", params=["rocketlet", "java"])
def shortened(
    request: pytest.FixtureRequest,
    shortened_store: pathlib.Path,
    rocketlet_up: StartServer,
    java_broker: StartServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Server:
    """Start our servers, then the official ones, on a copy of that store."""
    start = rocketlet_up if request.param == "rocketlet" else java_broker
    return start(shutil.copytree(shortened_store, tmp_path_factory.mktemp("copy") / "store"), **SETTINGS)


@pytest.fixture
async def admin(shortened: Server) -> AsyncGenerator[Admin]:
    """Yield our administrator's client."""
    async with Admin(shortened.namesrv) as running:
        yield running


@pytest.fixture
async def producer(shortened: Server) -> AsyncGenerator[Producer]:
    """Yield our producer; a JVM that is still warming up may take long."""
    async with Producer("pg", shortened.namesrv, settings=ProducerSettings(send_timeout_ms=10_000)) as running:
        yield running


async def read_all(server: Server, group: str, count: int) -> list[ReceivedMessage]:
    """Return what a new group that begins at the first message gets."""
    inbox = Inbox()
    async with push_consumer(server.namesrv, inbox, group=group):
        return await inbox.wait_for(count)


async def store_offset(admin: Admin, group: str, queue_offset: int) -> None:
    """Let a group be where it never was."""
    await admin.create_group(group)
    await admin.reset(group, {QUEUE: queue_offset})


async def committed(admin: Admin, group: str) -> int | None:
    """Return where a group is."""
    [only] = (await admin.progress(group, "T")).queues
    return only.committed


@pytest.mark.feature("B19", "B20")
@pytest.mark.parametrize("is_stored", [False, True], ids=["new group", "known group"])
@pytest.mark.parametrize("consume_from", ConsumeFrom, ids=lambda rule: rule.name)
async def test_group_begins_where_it_is_else_by_its_rule(
    shortened: Server, admin: Admin, producer: Producer, new_name: NewName, consume_from: ConsumeFrom, is_stored: bool
) -> None:
    """At the first message that is left, at the end, or at the first that was stored at an instant.

    A group that is somewhere goes on there, whatever it asks for. Another one that begins at the first gets all.
    """
    first, end = (await admin.offsets("T"))[QUEUE]
    everything = await read_all(shortened, new_name(), end - first)
    assert [message.queue_offset for message in everything] == [*range(first, end)]
    stored_at_ms = [message.stored_at_ms for message in everything]
    at_ms = stored_at_ms[len(everything) // 2]
    at_instant = first + bisect.bisect_left(stored_at_ms, at_ms)
    assert 0 < first < at_instant < end - 5
    group, start = new_name(), end - 5
    if is_stored:
        await store_offset(admin, group, start)
    else:
        start = {ConsumeFrom.FIRST: first, ConsumeFrom.LAST: end, ConsumeFrom.TIMESTAMP: at_instant}[consume_from]
    inbox = Inbox()
    consumer = push_consumer(shortened.namesrv, inbox, group=group, consume_from=consume_from, consume_from_at_ms=at_ms)
    async with consumer:
        await producer.send(Message("T", b"x"))
        got = await inbox.wait_for(end + 1 - start)
    assert [message.queue_offset for message in got] == [*range(start, end + 1)]


@pytest.mark.feature("B18")
async def test_offset_that_is_too_small_is_replaced(shortened: Server, admin: Admin, new_name: NewName) -> None:
    """The broker names the first message that is left: from there on all are consumed and committed."""
    first, end = (await admin.offsets("T"))[QUEUE]
    group, inbox = new_name(), Inbox()
    await store_offset(admin, group, first - 1)
    async with push_consumer(shortened.namesrv, inbox, group=group):
        got = await inbox.wait_for(end - first)
    assert [message.queue_offset for message in got] == [*range(first, end)]


@pytest.mark.feature("B18")
async def test_offset_that_is_too_large_is_replaced(
    shortened: Server, admin: Admin, producer: Producer, new_name: NewName
) -> None:
    """The broker names the end: that is stored before anything is consumed, and what comes then is consumed."""
    _, end = (await admin.offsets("T"))[QUEUE]
    group, inbox = new_name(), Inbox()
    await store_offset(admin, group, end + 100)
    async with push_consumer(shortened.namesrv, inbox, group=group):
        await ask_until_async(lambda: committed(admin, group), lambda offset: offset == end)
        assert inbox.messages == []
        await producer.send(Message("T", b"x"))
        [only] = await inbox.wait_for(1)
    assert only.queue_offset == end
