"""A topic that is followed: from a place, until a place, with filters; what comes later; a broker that is away."""

import pathlib
from collections.abc import AsyncGenerator

import pytest
from push_bench import pulled
from real_broker import restartable_broker, running_broker
from scripted_cluster import Answer, ScriptedCluster, offset_of, refused

from rocketlet.client import (
    Admin,
    ClientSettings,
    Message,
    MessageQueue,
    Position,
    Producer,
    ProducerSettings,
    Sql,
    TopicChange,
    TopicSettings,
)
from rocketlet.common.codes import ResponseCode
from rocketlet.common.errors import ResponseError, RouteNotFoundError
from rocketlet.namesrv.server import NameServer
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.transport.event_loop import TaskScope
from rocketlet.testing import ManualClock


@pytest.fixture
async def admin(address: str) -> AsyncGenerator[Admin]:
    """Yield an admin of a broker with a topic T of two queues: 0, 2, 4 in the first, 1, 3 in the other."""
    async with Admin(address) as admin, Producer("pg", address) as producer:
        await admin.create_topic("T", TopicSettings(read_queues=2, write_queues=2))
        queues = await admin.queues("T")
        for number in range(5):
            message = Message("T", b"%d" % number, tags="odd" if number % 2 else "even", properties={"n": str(number)})
            await producer.send(message, queue=queues[number % 2])
        yield admin


async def bodies(admin: Admin, start: Position, until: Position, **options: object) -> list[int]:
    """Return what is read between two positions, sorted."""
    async with admin.follow("T", start=start, until=until, **options) as tail:  # pyright: ignore[reportArgumentType] # as in the calls
        return sorted([int(message.body) async for message in tail])


async def test_what_lies_between_two_positions(admin: Admin) -> None:
    """By beginning, end, offsets and times; of some queues alone; nothing where nothing is."""
    begin, end = Position.begin(), Position.end()
    first, other = await admin.queues("T")
    assert await bodies(admin, begin, end) == [0, 1, 2, 3, 4]
    assert await bodies(admin, Position.offset(1), end) == [2, 3, 4]
    assert await bodies(admin, begin, Position.offset(2)) == [0, 1, 2, 3]
    assert await bodies(admin, begin, end, queues=[other]) == [1, 3]
    assert await bodies(admin, end, end) == []
    third = await admin.message_at(first, 1)
    assert third is not None
    split = Position.time(third.stored_at_ms)
    before, after = await bodies(admin, begin, split), await bodies(admin, split, end)
    assert before + after == [0, 1, 2, 3, 4] or sorted(before + after) == [0, 1, 2, 3, 4]
    assert 2 in after
    assert 0 in before or third.stored_at_ms == (await admin.messages("T").__anext__()).stored_at_ms


async def test_each_queue_is_begun_at_its_own_offset(admin: Admin) -> None:
    """As somebody goes on who has stopped there; queues without an offset, and too early ones, from their beginning."""
    first, other = await admin.queues("T")
    for offsets, expected in (
        ({first: 2, other: 1}, [3, 4]),
        ({first: 1}, [1, 2, 3, 4]),
        ({first: 3, other: 2}, []),
        ({}, [0, 1, 2, 3, 4]),
    ):
        async with admin.follow("T", start=offsets, until=Position.end()) as tail:
            assert sorted([int(message.body) async for message in tail]) == expected
    with pytest.raises(ValueError, match="-1"):
        await admin.follow("T", start={first: -1}).__aenter__()


async def test_filters_apply(admin: Admin) -> None:
    """Tags and conditions leave out what they exclude, also at the end of a queue."""
    assert await bodies(admin, Position.begin(), Position.end(), expression="odd") == [1, 3]
    assert await bodies(admin, Position.begin(), Position.end(), expression="odd || even") == [0, 1, 2, 3, 4]


async def test_condition_applies(nameserver: NameServer, tmp_path: pathlib.Path) -> None:
    """SQL on properties, at a broker that has it enabled; one that has not says so, and following ends with that."""
    async with (
        running_broker(nameserver, tmp_path / "on", settings={"enablePropertyFilter": "true"}),
        Admin(nameserver.address) as admin,
        Producer("pg", nameserver.address) as producer,
    ):
        await admin.create_topic("T")
        for number in range(4):
            await producer.send(Message("T", b"%d" % number, properties={"n": str(number)}))
        assert await bodies(admin, Position.begin(), Position.end(), expression=Sql("n > 1")) == [2, 3]
        await admin.change_broker_settings("broker-a", {"enablePropertyFilter": "false"})
        with pytest.raises(ResponseError, match="SQL92"):
            await bodies(admin, Position.begin(), Position.end(), expression=Sql("n > 1"))


async def test_messages_that_come_later_are_followed(admin: Admin, address: str) -> None:
    """From the end on, and until an offset that is not there yet."""
    first, _ = await admin.queues("T")
    async with Producer("pg", address) as producer, admin.follow("T") as tail:
        for number in range(5, 8):
            await producer.send(Message("T", b"%d" % number))
            assert int((await anext(tail)).body) == number
    async with Producer("pg", address) as producer:
        extent = (await admin.extents("T"))[first]
        until = Position.offset(extent.end_offset + 1)
        async with admin.follow("T", start=Position.offset(extent.end_offset), until=until, queues=[first]) as tail:
            await producer.send(Message("T", b"last"), queue=first)
            await producer.send(Message("T", b"behind"), queue=first)
            assert [message.body async for message in tail] == [b"last"]
            with pytest.raises(StopAsyncIteration):
                await anext(tail)


async def test_unknown_topics_and_queues_are_told(admin: Admin) -> None:
    """Before anything is read."""
    with pytest.raises(RouteNotFoundError, match="missing"):
        await admin.follow("missing").__aenter__()
    with pytest.raises(ValueError, match="there is no T queue 9 at broker-a"):
        await admin.follow("T", queues=[MessageQueue("T", "broker-a", 9)]).__aenter__()
    with pytest.raises(ValueError, match="until the beginning"):
        admin.follow("T", until=Position.begin())
    with pytest.raises(ValueError, match="-1"):
        Position.offset(-1)
    with pytest.raises(ValueError, match="-1"):
        Position.time(-1)


async def test_namespace_is_followed(address: str) -> None:
    """Messages have the names of the application."""
    async with (
        Admin(address, settings=ClientSettings(namespace="ns")) as admin,
        Producer("pg", address, settings=ProducerSettings(namespace="ns")) as producer,
    ):
        await admin.create_topic("T")
        await producer.send(Message("T", b"x"))
        async with admin.follow("T", start=Position.begin()) as tail:
            message = await anext(tail)
    assert (message.topic, message.queue.topic, message.body) == ("T", "T", b"x")


async def test_broker_that_was_away_is_read_on(nameserver: NameServer, tmp_path: pathlib.Path) -> None:
    """Nothing is missing and nothing comes twice."""
    async with (
        restartable_broker(nameserver, tmp_path / "store") as restart,
        Admin(nameserver.address) as admin,
        Producer("pg", nameserver.address) as producer,
    ):
        await admin.create_topic("T", TopicSettings(read_queues=1, write_queues=1))
        async with admin.follow("T", start=Position.begin()) as tail:
            await producer.send(Message("T", b"1"))
            assert (await anext(tail)).body == b"1"
            await restart()
            await producer.send(Message("T", b"2"))
            assert (await anext(tail)).body == b"2"


async def test_refusal_ends_the_following(cluster: ScriptedCluster) -> None:
    """A busy broker, or one that has not got so far, is asked a second later; what it refuses for good is an error."""
    cluster.routes["T"] = {"a": 1}
    broker = await cluster.add_broker("a")
    clock = ManualClock()
    begun_at_ms = clock.now_ms()
    answers: list[Answer] = [
        refused(ResponseCode.SYSTEM_BUSY, "busy"),
        lambda _: pulled(0, code=ResponseCode.PULL_RETRY_IMMEDIATELY),
        refused(ResponseCode.NO_PERMISSION, "not for you"),
    ]
    broker.answers[RequestCode.PULL_MESSAGE] = lambda command: answers.pop(0)(command)  # noqa: PLW0108 # one answer for each
    broker.answers[RequestCode.GET_MIN_OFFSET] = broker.answers[RequestCode.GET_MAX_OFFSET] = lambda _: offset_of(0)
    refusals: list[str] = []

    async def follow(admin: Admin) -> None:
        async with admin.follow("T") as tail:
            with pytest.raises(ResponseError) as raised:
                await anext(tail)
            refusals.append(str(raised.value))
            with pytest.raises(StopAsyncIteration):
                await anext(tail)

    async with Admin(cluster.nameserver.address, clock=clock) as admin, TaskScope() as tasks:
        task = tasks.start(follow(admin), name="follow")
        while not task.done():
            await clock.elapse(100)
    assert len(refusals) == 1
    assert "not for you" in refusals[0]
    assert clock.now_ms() - begun_at_ms >= 2_000


async def test_route_that_is_gone_for_a_while_is_waited_for(cluster: ScriptedCluster) -> None:
    """A broker that ends takes its topics off the route; when it is back it is read on."""
    cluster.routes["T"] = {"a": 1}
    broker, clock = await cluster.add_broker("a"), ManualClock()
    broker.answers[RequestCode.PULL_MESSAGE] = refused(ResponseCode.SYSTEM_BUSY, "busy")
    broker.answers[RequestCode.GET_MIN_OFFSET] = broker.answers[RequestCode.GET_MAX_OFFSET] = lambda _: offset_of(0)

    async def follow(admin: Admin) -> None:
        async with admin.follow("T") as tail:
            with pytest.raises(ResponseError, match="not for you"):
                await anext(tail)

    async with Admin(cluster.nameserver.address, clock=clock) as admin, TaskScope() as tasks:
        task = tasks.start(follow(admin), name="follow")
        while not broker.asked(RequestCode.PULL_MESSAGE):
            await clock.elapse(100)
        route, known = cluster.routes.pop("T"), len(cluster.nameserver.asked(RequestCode.GET_ROUTEINFO_BY_TOPIC))
        while len(cluster.nameserver.asked(RequestCode.GET_ROUTEINFO_BY_TOPIC)) < known + 3:
            await clock.elapse(1_000)
        assert not task.done()
        cluster.routes["T"] = route
        broker.answers[RequestCode.PULL_MESSAGE] = refused(ResponseCode.NO_PERMISSION, "not for you")
        while not task.done():
            await clock.elapse(1_000)


async def test_queues_that_a_topic_gets_are_followed(own_address: str) -> None:
    """From their beginning, within half a minute."""
    clock = ManualClock()
    async with Admin(own_address, clock=clock) as admin, Producer("pg", own_address) as producer:
        await admin.create_topic("T", TopicSettings(read_queues=1, write_queues=1))
        async with admin.follow("T") as tail, TaskScope() as tasks:
            await admin.change_topic("T", TopicChange(read_queues=2, write_queues=2))
            await producer.send(Message("T", b"new"), queue=MessageQueue("T", "broker-a", 1))
            found = tasks.start(anext(tail), name="next")  # pyright: ignore[reportArgumentType] # an awaitable that is one
            while not found.done():
                await clock.elapse(1_000)
            assert (await found).body == b"new"
