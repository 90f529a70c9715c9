"""What the forms of the console do, judged by the broker."""

import re
from collections.abc import Awaitable, Callable
from contextlib import suppress

import httpx
import pytest
from inbox import Inbox
from subscribed import push_consumer

from rocketlet.client import (
    Admin,
    ConsumeResult,
    Message,
    Producer,
    ReceivedMessage,
    RouteNotFoundError,
    TopicSettings,
)
from rocketlet.console.access import FORM_KEY

Post = Callable[..., Awaitable[httpx.Response]]


@pytest.fixture
async def post(web: httpx.AsyncClient) -> Post:
    """Return what fills in a form of the page that it stands in, and returns where that leads."""

    async def fill(page: str, form: str, **fields: str) -> httpx.Response:
        source = (await web.get(page)).text
        assert f'action="{form}"' in source
        key = re.search(f'name="{FORM_KEY}" value="([^"]+)"', source)
        assert key
        return await web.post(form, data={FORM_KEY: key[1], **fields})

    return fill


@pytest.fixture
async def topic(nameserver: str) -> str:
    """Make a topic of one queue."""
    async with Admin(nameserver) as admin:
        await admin.create_topic("T", TopicSettings(read_queues=1, write_queues=1))
    return "T"


async def stored(nameserver: str) -> list[ReceivedMessage]:
    """Return the messages of T, the newest first."""
    async with Admin(nameserver) as admin:
        return await admin.newest("T", 100)


async def test_message_is_sent(post: Post, nameserver: str, topic: str) -> None:
    """With body, tag, keys and properties; the page it leads to says where it stands, and says so once."""
    fields = {"tags": " paid ", "keys": "k1  k2", "properties": "a=1\r\n\r\n b = x=y ", "delay": "0"}
    answer = await post("/topics/T", f"/topics/{topic}/send", body="one\r\ntwo", **fields)
    (message,) = await stored(nameserver)
    assert (message.body, message.tags, message.keys) == (b"one\ntwo", "paid", ("k1", "k2"))
    assert {"a": "1", "b": "x=y"}.items() <= message.properties.items()
    assert f"Message {message.message_id} is stored" in answer.text
    async with httpx.AsyncClient(trust_env=False) as client:
        assert "is stored" not in (await client.get(str(answer.url))).text


async def test_message_is_sent_for_later(post: Post, nameserver: str, topic: str) -> None:
    """A delay in seconds is one of the message: it is not there yet."""
    answer = await post("/topics/T", f"/topics/{topic}/send", body="later", delay="3600")
    assert "is stored" in answer.text
    assert await stored(nameserver) == []


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"delay": "soon"}, "the delay is &#39;soon&#39;, it must be a number of seconds"),
        ({"delay": "-1"}, "it must be a number of seconds"),
        ({"properties": "novalue"}, "property &#39;novalue&#39; is not name=value"),
        ({"properties": "=1"}, "is not name=value"),
        ({"properties": "TAGS=a"}, "property TAGS is set through tags"),
        ({"body": ""}, "body"),
    ],
)
async def test_message_that_cannot_be_sent(
    post: Post, nameserver: str, topic: str, fields: dict[str, str], text: str
) -> None:
    """The page says what is wrong, and nothing is stored."""
    answer = await post("/topics/T", f"/topics/{topic}/send", **{"body": "x", **fields})
    assert answer.status_code in {400, 502}
    assert text in answer.text
    assert await stored(nameserver) == []


async def test_group_begins_elsewhere(post: Post, nameserver: str, topic: str) -> None:
    """At the start, at the end, at an instant; a running member gets the messages again."""
    inbox = Inbox()
    async with Producer("shop", nameserver) as producer:
        for number in range(3):
            await producer.send(Message(topic, b"%d" % number))
        async with push_consumer(nameserver, inbox, group="g"):
            await inbox.wait_for(3)
    page, form = "/groups/g", "/groups/g/reset"

    async def committed() -> int:
        async with Admin(nameserver) as admin:
            (queue,) = (each for each in await admin.all_progress("g") if each.queue.topic == topic)
            return queue.committed

    assert await committed() == 3
    answer = await post(page, form, topic=topic, place="begin")
    assert "Group g goes on in 1 queues of T from there." in answer.text
    assert await committed() == 0
    await post(page, form, topic=topic, place="end")
    assert await committed() == 3
    second = (await stored(nameserver))[1]
    await post(page, form, topic=topic, place="time", time=str(second.stored_at_ms))
    assert await committed() <= second.queue_offset
    again = Inbox()
    async with push_consumer(nameserver, again, group="g"):
        await post(page, form, topic=topic, place="begin")
        await again.wait_for(3)


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({"topic": "T"}, 400, "say in which topic the group shall begin, and where"),
        ({"place": "begin"}, 400, "say in which topic"),
        ({"topic": "T", "place": "time"}, 400, "say at which time the group shall begin"),
        ({"topic": "T", "place": "time", "time": "soon"}, 400, "is no time"),
        ({"topic": "missing", "place": "begin"}, 404, "no broker has the topic missing"),
    ],
)
async def test_group_that_cannot_begin_there(
    post: Post, nameserver: str, topic: str, fields: dict[str, str], code: int, text: str
) -> None:
    """The page says why, and the group stays where it is."""
    inbox = Inbox()
    async with Producer("shop", nameserver) as producer, push_consumer(nameserver, inbox, group="g"):
        await producer.send(Message(topic, b"x"))
        await inbox.wait_for(1)
    answer = await post("/groups/g", "/groups/g/reset", **fields)
    assert (answer.status_code, text in answer.text) == (code, True)
    async with Admin(nameserver) as admin:
        assert [each.committed for each in await admin.all_progress("g") if each.queue.topic == topic] == [1]


@pytest.fixture
async def letters(nameserver: str, topic: str) -> list[ReceivedMessage]:
    """Have the group g give up two messages; return the dead letters, the newest first."""
    refused = Inbox()

    async def refuse(messages: list[ReceivedMessage]) -> ConsumeResult:
        await refused(messages)
        return ConsumeResult.RETRY

    async with Producer("shop", nameserver) as producer, push_consumer(nameserver, refuse, group="g", max_retries=0):
        for body in (b"one", b"two"):
            await producer.send(Message(topic, body, tags="paid"))
        await refused.wait_for(2)
    async with Admin(nameserver) as admin:
        found: list[ReceivedMessage] = []
        while len(found) < 2:  # they are stored behind the answer of the listener
            with suppress(RouteNotFoundError):
                found = await admin.newest("%DLQ%g", 100)
        return found


async def test_dead_letter_is_sent_again(post: Post, nameserver: str, letters: list[ReceivedMessage]) -> None:
    """What is chosen reaches its group as a message of its topic, and no other group."""
    page = "/groups/g/dead-letters"
    answer = await post(page, f"{page}/resend", **{letters[1].offset_message_id: "yes"})
    assert "Sent to group g again: 1 dead letters." in answer.text
    mine, others = Inbox(), Inbox()
    async with push_consumer(nameserver, others, group="h"), push_consumer(nameserver, mine, group="g"):
        await mine.wait_for(1)
        await others.wait_for(2)
        (again,) = mine.messages
        assert (again.body, again.topic, again.tags, again.reconsume_times) == (letters[1].body, "T", "paid", 0)
        assert len(await _held(nameserver, "%RETRY%g")) == 1
    assert others.bodies == {b"one": 1, b"two": 1}
    assert len(await _held(nameserver, "%DLQ%g")) == 2


async def test_dead_letters_that_cannot_be_sent_again(
    post: Post, nameserver: str, letters: list[ReceivedMessage]
) -> None:
    """None is chosen, or one that is not there: the page says so."""
    page = "/groups/g/dead-letters"
    assert "choose which dead letters" in (await post(page, f"{page}/resend")).text
    gone = f"{letters[0].offset_message_id[:-1]}7"
    answer = await post(page, f"{page}/resend", **{gone: "yes"})
    assert (answer.status_code, "has no dead letter" in answer.text) == (400, True)
    assert await _held(nameserver, "%RETRY%g") == []


async def _held(nameserver: str, topic: str) -> list[ReceivedMessage]:
    async with Admin(nameserver) as admin:
        return await admin.newest(topic, 100)
