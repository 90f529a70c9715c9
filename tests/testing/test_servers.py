"""Servers that are stopped, killed and started again, a second broker, and a wire that is cut."""

import asyncio
import socket
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from typing import Any

import pytest
from inbox import Inbox
from raw_calls import open_caller, until
from slow_disk import SlowDisk
from subscribed import consume, push_consumer

from rocketlet.client import Message, Producer, SendResult
from rocketlet.common.codes import ResponseCode
from rocketlet.common.errors import ConnectFailedError, ConnectionClosedError, RemotingError
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.frames import encode_command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.testing import Fault, RocketmqBroker


@pytest.fixture
def broker() -> Iterator[RocketmqBroker]:
    """Run a broker that may be stopped."""
    with RocketmqBroker() as started:
        yield started


async def send(broker: RocketmqBroker, topic: str, *bodies: bytes) -> None:
    """Send with our client."""
    async with Producer("servers", nameserver=broker.nameserver) as producer:
        for body in bodies:
            await producer.send(Message(topic, body))


def stored(broker: RocketmqBroker, topic: str) -> list[bytes]:
    """Return what is stored in a topic."""
    return [message.body for message in broker.messages(topic)]


async def test_stopped_broker_comes_back(broker: RocketmqBroker) -> None:
    """It refuses connections, tells that it does not run, and serves what it had on the same port."""
    topic, address = await broker.create_topic(queues=1), broker.address
    await send(broker, topic, b"before")
    async with open_caller(broker.address) as caller:
        broker.stop()
        with pytest.raises(RemotingError):
            await caller.send(topic)
    assert not (broker.store / "abort").exists()
    with pytest.raises(ConnectFailedError):
        async with open_caller(address):
            pass
    with pytest.raises(RuntimeError, match="broker-a does not run"):
        broker.messages(topic)
    broker.stop()  # once is enough
    broker.restart()
    assert broker.address == address
    await send(broker, topic, b"after")
    assert stored(broker, topic) == [b"before", b"after"]
    assert set((await consume(broker.nameserver, 2, topic=topic)).bodies) == {b"before", b"after"}


async def test_killed_broker_leaves_what_was_written(broker: RocketmqBroker) -> None:
    """Connections are reset, nothing is tidied up, and the next start recovers every acknowledged message."""
    topic = await broker.create_topic(queues=1)
    await send(broker, topic, *(b"%d" % number for number in range(20)))
    async with open_caller(broker.address) as caller:
        await caller.send(topic, b"last")
        before = {path: path.read_bytes() for path in sorted((broker.store / "config").rglob("*")) if path.is_file()}
        broker.kill()
        with pytest.raises(RemotingError):
            await caller.send(topic)
    assert (broker.store / "abort").exists()
    assert before == {
        path: path.read_bytes() for path in sorted((broker.store / "config").rglob("*")) if path.is_file()
    }
    broker.kill()  # once is enough
    broker.restart()
    assert stored(broker, topic) == [*(b"%d" % number for number in range(20)), b"last"]
    await send(broker, topic, b"after")


def test_connections_of_a_killed_broker_are_reset(broker: RocketmqBroker) -> None:
    """A client reads an error, and not the end that a stop sends."""
    host, _, port = broker.address.rpartition(":")
    for end, is_reset in ((broker.kill, True), (broker.stop, False)):
        with socket.create_connection((host, int(port))) as client:
            client.sendall(encode_command(Command.request(RequestCode.GET_BROKER_CONFIG)))
            size = int.from_bytes(client.recv(4), "big")
            client.recv(size, socket.MSG_WAITALL)
            end()
            if is_reset:
                with pytest.raises(ConnectionResetError):
                    client.recv(1)
            else:
                assert client.recv(1) == b""
        broker.restart()


async def test_killed_broker_is_gone_for_the_name_server(broker: RocketmqBroker) -> None:
    """It finds the connection closed, without a good-bye, and learns of the broker when that starts again."""
    topic = await broker.create_topic()
    async with open_caller(broker.nameserver) as caller:
        broker.kill()
        assert (await caller.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})).code == (
            ResponseCode.TOPIC_NOT_EXIST
        )
        broker.restart()
        assert (await caller.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})).code == ResponseCode.SUCCESS
    assert len(broker.requests(on="unregister_broker")) == 0


async def test_kill_and_restart_in_mid_traffic(broker: RocketmqBroker) -> None:
    """Our producer sends through a kill: what was answered is there, where the answer says, whatever has failed."""
    topic = await broker.create_topic(queues=1)
    fault = broker.faults.add(on="send", after=200, times=None, answer=Fault.DROP)
    async with Producer("servers", nameserver=broker.nameserver) as producer, asyncio.TaskGroup() as tasks:
        sending = [tasks.create_task(try_to_send(producer, topic, b"%d" % number)) for number in range(300)]
        await fault.met()
        fault.remove()
        await asyncio.to_thread(broker.kill)
        await asyncio.to_thread(broker.restart)
    answered = {number: sent.queue_offset for number, each in enumerate(sending) if (sent := each.result()) is not None}
    found = stored(broker, topic)
    assert len(answered) >= 200
    assert all(found[queue_offset] == b"%d" % number for number, queue_offset in answered.items())
    await send(broker, topic, b"after")


async def try_to_send(producer: Producer, topic: str, body: bytes) -> SendResult | None:
    """Return what a send gave, `None` if no broker answered."""
    try:
        return await producer.send(Message(topic, body))
    except RemotingError:
        return None


async def test_name_server_goes_and_comes_back(broker: RocketmqBroker) -> None:
    """Nobody finds the broker while it is gone, and everybody when it is there again."""
    topic = await broker.create_topic(queues=1)
    async with Producer("servers", nameserver=broker.nameserver) as known:
        await known.send(Message(topic, b"1"))
        broker.stop_nameserver()
        await known.send(Message(topic, b"2"))
        with pytest.raises(RemotingError):
            await send(broker, topic, b"lost")
        broker.start_nameserver()
        broker.start_nameserver()  # once is enough
    await send(broker, topic, b"3")
    assert stored(broker, topic) == [b"1", b"2", b"3"]


async def test_second_broker_takes_its_share(broker: RocketmqBroker) -> None:
    """It registers at the same name server; it has a store, faults and a life of its own, and ends with the test."""
    other = await asyncio.to_thread(broker.add_broker, "broker-b")
    topic = await broker.create_topic("orders", queues=1)
    await other.create_topic(topic, queues=1)
    await send(broker, topic, *(b"%d" % number for number in range(4)))
    assert len(broker.messages(topic)) == len(other.messages(topic)) == 2
    assert {message.queue.broker_name for message in other.messages(topic)} == {"broker-b"}
    assert len(other.requests(on="send")) == 2
    assert other.name in repr(other.messages(topic)[0].queue)
    other.faults.add(on="send", answer=ResponseCode.SYSTEM_BUSY)
    await send(broker, topic, b"5", b"6")
    with pytest.raises(ValueError, match="there is a broker 'broker-b' already, these are: broker-a, broker-b"):
        broker.add_broker("broker-b")
    with pytest.raises(ValueError, match="broker-b registers at the name server of another broker"):
        other.stop_nameserver()
    other.kill()
    await send(broker, topic, b"7")
    await asyncio.to_thread(broker.end_test)
    assert not other.store.exists()
    assert (await asyncio.to_thread(broker.add_broker)).name == "broker-b"


async def test_brokers_of_a_fixture_have_one_time(broker: RocketmqBroker) -> None:
    """A delayed message of the second is delivered when the clock of either is moved, though the first is gone."""
    other = await asyncio.to_thread(broker.add_broker)
    topic = await other.create_topic("orders", queues=1)
    for clock, body in ((broker.clock, b"1"), (other.clock, b"2")):
        async with Producer("servers", nameserver=broker.nameserver) as producer:
            await producer.send(Message(topic, body, delay_level=5))
        await clock.elapse(minutes=1)
        assert stored(other, topic)[-1] == body
        broker.kill()
    broker.restart()
    broker.clock.advance(hours=1)


async def test_waits_outlive_a_restart(broker: RocketmqBroker) -> None:
    """Who waits for a message hears of it from the broker that was started again."""
    topic = await broker.create_topic(queues=1)
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(broker.arrived(topic))
        await asyncio.to_thread(broker.kill)
        await asyncio.to_thread(broker.restart)
        await send(broker, topic, b"after")
    assert [message.body for message in waiting.result()] == [b"after"]


async def test_slave_outlives_its_master(broker: RocketmqBroker) -> None:
    """A slave is a broker of the same name with a number; it has what the master had when that is killed."""
    topic = await broker.create_topic(queues=1)
    settings = {"brokerRole": "SLAVE", "brokerId": "1", "slaveReadEnable": "true"}
    slave = await asyncio.to_thread(broker.add_broker, broker.name, settings)
    await send(broker, topic, b"copied")

    def is_copied() -> bool:
        try:
            return stored(slave, topic) == [b"copied"]
        except ValueError:  # it has not copied the topics yet
            return False

    await until(is_copied)
    broker.kill()
    async with open_caller(slave.address) as caller:
        assert b"copied" in (await caller.pull(topic)).body
    assert [pull.server for pull in slave.requests(on="pull")] == ["broker-a-1"]
    with pytest.raises(ValueError, match="there is a broker 'broker-a-1' already, these are: broker-a, broker-a-1"):
        broker.add_broker(broker.name, settings)


def test_second_broker_tells_its_unmet_faults(broker: RocketmqBroker) -> None:
    """They fail the test as those of the first do."""
    broker.add_broker().faults.add(on="send", answer=Fault.DROP)
    with pytest.raises(AssertionError, match="no request has met the fault: send: dropped"):
        broker.end_test()


def test_end_of_a_test_starts_what_it_has_stopped(broker: RocketmqBroker) -> None:
    """The next test finds name server and broker as if nothing had been."""
    topic = broker.topic()
    broker.kill()
    broker.stop_nameserver()
    broker.end_test()
    assert broker.messages(topic) == []
    assert broker.topic() != topic


def test_files_of_ones_own_cannot_be_killed() -> None:
    """A disk that is not told that its process is gone would write on; the error says what to do."""
    with RocketmqBroker(files=SlowDisk()) as broker:
        with pytest.raises(TypeError, match=r"derive them from rocketlet\.testing\.DiskFaults"):
            broker.kill()
        with pytest.raises(TypeError, match=r"derive them from rocketlet\.testing\.DiskFaults"):
            broker.faults.disk_full()


async def test_nothing_passes_a_partition(broker: RocketmqBroker) -> None:
    """What the client sends arrives behind it, in order, as does what the broker had to say; others notice nothing."""
    topic = await broker.create_topic(queues=1)
    async with (
        open_caller(broker.address) as caller,
        open_caller(broker.address) as other,
        asyncio.TaskGroup() as tasks,
    ):
        await caller.heartbeat("10.0.0.9@7", "billing", {topic: "*"})
        await caller.next_request()  # that it has joined
        pulling = tasks.create_task(caller.pull(topic, 0, sys_flag=6))
        await until(lambda: len(broker.requests(on="pull")) == 1)
        with broker.partition("10.0.0.9@7"):
            sending = [tasks.create_task(caller.send(topic, body)) for body in (b"2", b"3")]
            await other.send(topic, b"1")  # wakes the pull
            await other.heartbeat("10.0.0.9@8", "billing", {topic: "*"})  # tells the group
            assert stored(broker, topic) == [b"1"]
            assert not pulling.done()
            assert caller.requests.empty()
        assert b"1" in (await pulling).body
        assert [(await each).code for each in sending] == [0, 0]
        assert (await caller.next_request()).code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    assert stored(broker, topic) == [b"1", b"2", b"3"]


async def test_faults_wait_behind_a_partition(broker: RocketmqBroker) -> None:
    """A request that was held back meets them when it arrives, a delay as well."""
    topic = await broker.create_topic(queues=1)
    broker.faults.add(on="send", topic=topic, delay_ms=1)
    async with open_caller(broker.address) as caller, open_caller(broker.address) as again:
        await caller.heartbeat("10.0.0.9@7", "billing", {topic: "*"})
        await caller.pull(topic, 0, consumer_group="mine")
        async with asyncio.TaskGroup() as tasks:
            with broker.partition("10.0.0.9@7") as cut:
                sending = tasks.create_task(again.send(topic, b"late", producer_group="mine"))
                await until(lambda: len(cut.parked) == 1)
        assert sending.result().code == ResponseCode.SUCCESS
    assert stored(broker, topic) == [b"late"]


async def test_much_is_held_back(broker: RocketmqBroker) -> None:
    """Large answers wait behind a partition as small ones do, whole and in order."""
    topic = await broker.create_topic(queues=1)
    body = bytes(range(256)) * 1_000
    async with (
        open_caller(broker.address) as caller,
        open_caller(broker.address) as other,
        asyncio.TaskGroup() as tasks,
    ):
        await caller.heartbeat("10.0.0.9@7", "billing", {topic: "*"})
        await caller.next_request()
        pulling = tasks.create_task(caller.pull(topic, 0, sys_flag=6))
        await until(lambda: len(broker.requests(on="pull")) == 1)
        with broker.partition("10.0.0.9@7"):
            await other.send(topic, body)
            assert not pulling.done()
        assert body in (await pulling).body


@pytest.mark.parametrize("how", ["close", "abort"])
async def test_end_behind_a_partition_is_heard_later(broker: RocketmqBroker, how: str) -> None:
    """Whether the broker closes properly or at once: the client hears of it when the wire is whole."""
    async with open_caller(broker.address) as caller:
        await caller.heartbeat("10.0.0.9@7", "billing", {"orders": "*"})
        (connection,) = broker.connections()
        with broker.partition("10.0.0.9@7"):
            broker.on_loop(getattr(connection, how))
            await until(lambda: not broker.connections())
            assert not caller.connection.is_closed
        await until(lambda: caller.connection.is_closed)


async def test_new_connections_of_a_client_are_cut_off_too(broker: RocketmqBroker) -> None:
    """A heartbeat with its id, and a group that is its alone, tell whose connection it is."""
    topic = await broker.create_topic(queues=1)
    async with (
        open_caller(broker.address) as caller,
        open_caller(broker.address) as other,
        asyncio.TaskGroup() as tasks,
    ):
        await caller.heartbeat("10.0.0.9@7", "billing", {topic: "*"})
        await caller.send(topic, b"1", producer_group="mine")
        await other.send(topic, b"2", producer_group="shared")
        with broker.partition("10.0.0.9@7") as cut:
            async with open_caller(broker.address) as again, open_caller(broker.address) as named:
                by_group = tasks.create_task(_end_of(again.send(topic, b"3", producer_group="mine")))
                by_name = tasks.create_task(_end_of(named.heartbeat("10.0.0.9@7", "billing", {topic: "*"})))
                await until(lambda: len(cut.parked) == 2)
                assert (await other.send(topic, b"4", producer_group="shared")).code == 0
                assert stored(broker, topic) == [b"1", b"2", b"4"]
        await by_group
        await by_name
    await until(lambda: stored(broker, topic) == [b"1", b"2", b"4", b"3"])


async def _end_of(asking: Coroutine[Any, Any, object]) -> None:
    with suppress(ConnectionClosedError):
        await asking


async def test_own_consumer_is_cut_off(broker: RocketmqBroker) -> None:
    """Our push consumer gets what was sent meanwhile, once, when the wire is whole again."""
    topic, inbox = await broker.create_topic(queues=1), Inbox()
    async with push_consumer(broker.nameserver, inbox, topic=topic):
        await send(broker, topic, b"before")
        await inbox.wait_for(1)
        client_id = broker.requests(on="heartbeat", group="cg")[0].client
        with broker.partition(client_id or ""):
            await send(broker, topic, b"during")
            assert len(inbox.messages) == 1
        assert [message.body for message in await inbox.wait_for(2)] == [b"before", b"during"]


def test_unknown_client_cannot_be_cut_off(broker: RocketmqBroker) -> None:
    """A partition from nobody would test nothing; the error says who is there."""
    with (
        pytest.raises(ValueError, match="no client 'nobody' is connected, these are: none"),
        broker.partition("nobody"),
    ):
        pass


async def test_broker_that_stops_ends_its_partitions(broker: RocketmqBroker) -> None:
    """Stop and kill take the sockets with them; the block may end afterwards."""
    for end in (broker.stop, broker.kill):
        async with open_caller(broker.address) as caller:
            await caller.heartbeat("10.0.0.9@7", "billing", {"orders": "*"})
            with broker.partition("10.0.0.9@7"):
                end()
                await until(lambda: caller.connection.is_closed)
        broker.restart()


def test_frozen_broker_is_killed_and_started_again() -> None:
    """None of it waits for time to pass."""
    with RocketmqBroker() as broker:
        broker.clock.freeze()
        topic = broker.topic()
        broker.kill()
        broker.restart()
        broker.stop_nameserver()
        broker.stop()
        broker.start_nameserver()
        broker.restart()
        assert broker.messages(topic) == []
