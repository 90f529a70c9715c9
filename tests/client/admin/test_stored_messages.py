"""Messages through the administrator's client: by id, by key, by time."""

import uuid

import pytest

from rocketlet.client import Admin, Message, Producer, ReceivedMessage, SendResult, TopicSettings
from rocketlet.common.errors import RouteNotFoundError


async def found_by_key(admin: Admin, key: str, count: int) -> list[ReceivedMessage]:
    """Return the messages with a key once the broker has indexed so many."""
    found: list[ReceivedMessage] = []
    while len(found) < count:
        found = await admin.messages_by_key("T", key)
    return found


async def send_all(producer: Producer, *messages: Message) -> list[SendResult]:
    """Send one after the other."""
    return [await producer.send(message) for message in messages]


@pytest.mark.feature("Q5", "Q6")
async def test_message_of_an_id(address: str) -> None:
    """The unique key and the offset id name the same message; another id names none."""
    async with Admin(address) as admin, Producer("pg", address) as producer:
        await admin.create_topic("U")
        key = str(uuid.uuid4())
        one, two = await send_all(producer, Message("T", b"one", keys=[key]), Message("T", b"two", keys=[key]))
        await found_by_key(admin, key, 2)
        for result, body in ((one, b"one"), (two, b"two")):
            by_key = await admin.message("T", result.message_id)
            by_place = await admin.message("T", result.offset_message_id)
            assert by_key is not None
            assert (by_key.body, by_key.queue, by_key.queue_offset) == (body, result.queue, result.queue_offset)
            assert by_place == by_key
        assert await admin.message("T", one.message_id[:-4] + "FFFF") is None
        assert await admin.message("U", one.offset_message_id) is None
        assert await admin.message("T", "no id") is None
        with pytest.raises(RouteNotFoundError):
            await admin.message("missing", one.message_id)


@pytest.mark.feature("Q4", "Q7")
async def test_messages_of_a_key(address: str) -> None:
    """All that have the key, in the order in which they were stored, no more than asked for."""
    async with Admin(address) as admin, Producer("pg", address) as producer:
        all_, even, odd = (f"{word}-{uuid.uuid4()}" for word in ("all", "even", "odd"))
        messages = [Message("T", b"%d" % number, keys=[odd if number % 2 else even, all_]) for number in range(6)]
        await send_all(producer, *messages)
        found = await found_by_key(admin, all_, 6)
        assert sorted(message.body for message in found) == [b"0", b"1", b"2", b"3", b"4", b"5"]
        assert [message.stored_at_ms for message in found] == sorted(message.stored_at_ms for message in found)
        assert {message.body for message in await found_by_key(admin, odd, 3)} == {b"1", b"3", b"5"}
        assert len(await admin.messages_by_key("T", all_, max_messages=2)) == 2
        assert await admin.messages_by_key("T", "none") == []
        assert await admin.messages_by_key("T", all_, end_ms=found[0].stored_at_ms) == []
        with pytest.raises(ValueError, match="max_messages is 0"):
            await admin.messages_by_key("T", all_, max_messages=0)


@pytest.mark.feature("Q4", "Q5")
async def test_words_of_one_hash_are_told_apart(address: str) -> None:
    """Indexes hold hashes: of Aa and BB, the same one, and of one key in topics of these names."""
    async with Admin(address) as admin, Producer("pg", address) as producer:
        word = uuid.uuid4().hex[:6]
        keys, topics = (f"Aa{word}", f"BB{word}"), (f"{word}Aa", f"{word}BB")
        for topic in topics:
            await admin.create_topic(topic, TopicSettings(read_queues=1, write_queues=1))
        for topic in topics:
            await send_all(producer, *(Message(topic, f"{topic} {key}".encode(), keys=[key]) for key in keys))
        for topic in topics:
            for key in keys:
                while not (found := await admin.messages_by_key(topic, key)):
                    pass
                assert [message.body for message in found] == [f"{topic} {key}".encode()]
                assert await admin.message(topic, key) is None


async def test_messages_of_a_span_of_time(address: str) -> None:
    """All that was stored from one instant on and before another, with the tags asked for; later ones are left out."""
    async with Admin(address) as admin, Producer("pg", address) as producer:
        await admin.create_topic("T", TopicSettings(read_queues=1, write_queues=1))
        for number in range(100):
            await producer.send(Message("T", b"%d" % number, tags="odd" if number % 2 else "even"))
        everything: list[ReceivedMessage] = []
        while len(everything) < 100:  # the Java broker lets readers see a message some time after it has answered
            everything = [message async for message in admin.messages("T")]
        assert [int(message.body) for message in everything] == list(range(100))
        begin, end = everything[40].stored_at_ms, everything[60].stored_at_ms
        middle = [message async for message in admin.messages("T", begin_ms=begin, end_ms=end)]
        assert middle == [message for message in everything if begin <= message.stored_at_ms < end]
        odd = [message async for message in admin.messages("T", end_ms=end, expression="odd")]
        assert odd == [message for message in everything if message.stored_at_ms < end and message.tags == "odd"]
        reading = admin.messages("T")
        await anext(reading)
        await producer.send(Message("T", b"late"))
        assert len([message async for message in reading]) == 99
        with pytest.raises(RouteNotFoundError):
            await anext(admin.messages("missing"))
