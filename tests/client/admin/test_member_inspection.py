"""Members, tracks and messages out of turn through the administrator's client."""

import asyncio
import itertools
import pathlib

import pytest
from inbox import Inbox
from subscribed import pull_consumer, push_consumer

from rocketlet.client import (
    Admin,
    ConsumeResult,
    Message,
    MessageQueue,
    Producer,
    ReceivedMessage,
    Session,
    TopicSettings,
    Track,
)
from rocketlet.common.errors import ResponseError

_numbers = itertools.count(1)


def new_group() -> str:
    """Return the name of a group that no other test uses."""
    return f"inspected-{next(_numbers)}"


async def stored(admin: Admin, topic: str, count: int = 1) -> list[ReceivedMessage]:
    """Return the messages of a topic once there are so many: queues of the official broker follow its log."""
    found: list[ReceivedMessage] = []
    while len(found) < count:
        found = [message async for message in admin.messages(topic)]
    return found


@pytest.mark.feature("D6")
async def test_producers_of_a_group(address: str) -> None:
    """Those that are connected, with client id, address, language and version; nobody is an empty list."""
    group = new_group()
    async with Admin(address) as admin:
        await admin.create_topic("T")
        assert await admin.producers(group) == ()
        async with Session(address) as session, Producer(group, session=session) as producer:
            await producer.send(Message("T", b"x"))
            [found] = await admin.producers(group)
            assert (found.client_id, found.language) == (session.client_id, "PYTHON")
            assert found.address.startswith("127.0.0.1:")
            assert found.version > 0
            assert (await admin.all_producers())[group] == (found,)
        assert group not in await admin.all_producers()


@pytest.mark.feature("D7")
async def test_running_info_of_a_member(address: str) -> None:
    """Settings, subscriptions, queues with what is committed, and stacks where they are asked for."""
    group = new_group()
    inbox = Inbox()
    async with Admin(address) as admin, Producer("pg", address) as producer:
        await admin.create_topic("T", TopicSettings(read_queues=1, write_queues=1))
        await producer.send(Message("T", b"x"))
        async with push_consumer(address, inbox, group=group) as consumer:
            await inbox.wait_for(1)
            info = await admin.running_info(group, consumer.client_id)
            assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
            assert info.subscriptions == {"T": "*", f"%RETRY%{group}": "*"}
            assert {queue.topic for queue in info.queues} <= info.subscriptions.keys()
            assert {queue.queue_id for queue in info.queues if queue.topic == "T"} == {0}
            assert info.stacks == ""
            told = await admin.running_info(group, consumer.client_id, with_stacks=True)
            assert "test_running_info_of_a_member" in told.stacks
        with pytest.raises(ResponseError, match=f"The Consumer <{group}> <{consumer.client_id}> not online") as refused:
            await admin.running_info(group, consumer.client_id)
        assert refused.value.code == 1


@pytest.mark.feature("D21")
async def test_message_out_of_turn(address: str) -> None:
    """The listener gets it once more, how it took it is told, and the offsets stay."""
    group = new_group()
    got: list[bytes] = []
    results = iter([None, None, ConsumeResult.RETRY])
    consumed = asyncio.Event()

    async def listen(messages: list[ReceivedMessage]) -> ConsumeResult | None:
        got.append(messages[0].body)
        consumed.set()
        return next(results)

    async with Admin(address) as admin, Producer("pg", address) as producer:
        await admin.create_topic("T", TopicSettings(read_queues=1, write_queues=1))
        await producer.send(Message("T", b"x"))
        [message] = await stored(admin, "T")
        async with push_consumer(address, listen, group=group) as consumer:
            await consumed.wait()
            done = await admin.consume_now(group, consumer.client_id, message)
            assert (done.result, done.is_success, done.is_ordered, done.remark) == ("CR_SUCCESS", True, False, "")
            again = await admin.consume_now(group, consumer.client_id, message)
            assert (again.result, again.is_success) == ("CR_LATER", False)
        assert got == [b"x"] * 3
        assert (await admin.progress(group, "T")).lag == 0
        with pytest.raises(ResponseError, match="not online"):
            await admin.consume_now(group, consumer.client_id, message)


@pytest.mark.feature("D20")
async def test_tracks_of_a_message(address: str, tmp_path: pathlib.Path) -> None:
    """Consumed, filtered, not yet, offline, pulled and broadcast: each group of the topic has its own."""
    name = new_group()
    inbox, broadcast_inbox = Inbox(), Inbox()
    held, offsets = asyncio.Event(), str(tmp_path)

    async def hold(_messages: list[ReceivedMessage]) -> None:
        await held.wait()

    async with Admin(address) as admin, Producer("pg", address) as producer:
        await admin.create_topic("T", TopicSettings(read_queues=1, write_queues=1))
        sent = await producer.send(Message("T", b"x", tags="a"))
        [message] = await stored(admin, "T")
        async with push_consumer(address, inbox, group=f"{name}-gone"):
            await inbox.wait_for(1)
        expected = {
            f"{name}-gone": Track.NOT_ONLINE,
            f"{name}-done": Track.CONSUMED,
            f"{name}-held": Track.NOT_YET,
            f"{name}-pulled": Track.PULL,
            f"{name}-all": Track.BROADCAST,
        }
        async with (
            push_consumer(address, inbox, group=f"{name}-done", commit_interval_ms=1_000),
            push_consumer(address, hold, group=f"{name}-held"),
            pull_consumer(address, group=f"{name}-pulled"),
            push_consumer(address, broadcast_inbox, group=f"{name}-all", is_broadcast=True, offset_directory=offsets),
        ):
            await inbox.wait_for(2)
            await broadcast_inbox.wait_for(1)
            tracks: dict[str, Track] = {}
            while tracks != expected:  # the offset is committed within a second
                tracks = await admin.tracks(message)
                tracks = {group: track for group, track in tracks.items() if group.startswith(f"{name}-")}
            held.set()
    assert sent.queue == MessageQueue("T", message.queue.broker_name, 0)


@pytest.mark.feature("D21")
async def test_dead_letter_is_sent_again(address: str) -> None:
    """It goes to the topic that it came from, with key, tags and the application's properties, as a new message."""
    group = new_group()
    refused, inbox = asyncio.Event(), Inbox()

    async def refuse(_messages: list[ReceivedMessage]) -> ConsumeResult:
        refused.set()
        return ConsumeResult.RETRY

    async with Admin(address) as admin, Producer("pg", address) as producer:
        await admin.create_topic("T", TopicSettings(read_queues=1, write_queues=1))
        await producer.send(Message("T", b"x", tags="a", keys=["k"], properties={"colour": "red"}))
        async with push_consumer(address, refuse, group=group, max_retries=0):
            await refused.wait()
        while f"%DLQ%{group}" not in await admin.topics():
            pass  # name servers are told after the letter was stored
        [letter] = await stored(admin, f"%DLQ%{group}")
        again = await admin.resend(letter)
        assert again.queue.topic == "T"
        found = (await stored(admin, "T", 2))[-1]
        assert (found.body, found.tags, found.keys, found.properties["colour"]) == (b"x", "a", ("k",), "red")
        assert found.message_id == again.message_id != letter.message_id
        assert found.reconsume_times == 0
        assert "RETRY_TOPIC" not in found.properties
        async with push_consumer(address, inbox, group=group):
            await inbox.wait_for(1)
        assert inbox.bodies == {b"x": 1}


async def test_letter_goes_to_its_group_alone(address: str) -> None:
    """Its members get it as a message of its topic, of which no message comes; or it goes to a topic that is named."""
    group, inbox = new_group(), Inbox()
    async with Admin(address) as admin, Producer("pg", address) as producer:
        await admin.create_topic("T", TopicSettings(read_queues=1, write_queues=1))
        await admin.create_topic("U", TopicSettings(read_queues=1, write_queues=1))
        await producer.send(Message("T", b"x", tags="a", properties={"colour": "red"}))
        [letter] = await stored(admin, "T")
        async with push_consumer(address, inbox, group=group):
            await inbox.wait_for(1)
            again = await admin.resend(letter, group=group)
            second = (await inbox.wait_for(2))[1]
        assert again.queue.topic == f"%RETRY%{group}"
        assert (second.topic, second.body, second.tags, second.properties["colour"]) == ("T", b"x", "a", "red")
        await admin.resend(letter, topic="U")
        assert [each.body for each in await stored(admin, "U")] == [b"x"]
        assert len(await stored(admin, "T")) == 1
        with pytest.raises(ValueError, match="not to both"):
            await admin.resend(letter, group=group, topic="U")
