"""Broadcasting consumers against a real broker."""

import pathlib
from collections import Counter
from collections.abc import Callable

import pytest
from inbox import Inbox
from push_bench import COMMIT, PULL, Bench, Feed, pulled, records
from subscribed import consume, push_consumer

from rocketlet.client import (
    ConsumeResult,
    Listener,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
)
from rocketlet.common.errors import ConfigError

Join = Callable[[Listener], PushConsumer]


@pytest.fixture
def join(address: str, tmp_path: pathlib.Path) -> Join:
    """Return what makes a broadcasting consumer with a listener of T."""
    return lambda listener: push_consumer(
        address, listener, is_broadcast=True, offset_directory=str(tmp_path), client_host="10.0.0.1"
    )


@pytest.mark.feature("B21")
async def test_every_member_gets_every_message(address: str, producer: Producer, tmp_path: pathlib.Path) -> None:
    """Two members own all queues, and neither leaves offsets at the broker."""
    for number in range(8):
        await producer.send(Message("T", f"m{number}".encode()))
    inboxes = Inbox(), Inbox()
    members = [
        push_consumer(address, inbox, is_broadcast=True, instance_name=name, offset_directory=str(tmp_path / "offsets"))
        for name, inbox in zip("ab", inboxes, strict=True)
    ]
    async with members[0], members[1]:
        for inbox in inboxes:
            await inbox.wait_for(8)
        assert len(members[0].queues) == len(members[1].queues) == 4
    expected = Counter(f"m{number}".encode() for number in range(8))
    assert [inbox.bodies for inbox in inboxes] == [expected, expected]

    await consume(address, 8)


@pytest.mark.feature("B21")
async def test_offsets_survive_a_restart(join: Join, producer: Producer, tmp_path: pathlib.Path) -> None:
    """The consumer goes on where its file says, with another process id and client id."""
    for prefix in "ab":
        await producer.send(Message("T", prefix.encode()))
        inbox = Inbox()
        async with join(inbox):
            await inbox.wait_for(1)
        assert inbox.bodies == Counter([prefix.encode()])
    assert (tmp_path / "10.0.0.1@DEFAULT" / "cg" / "offsets.json").exists()


async def test_offsets_are_stored_while_it_runs(bench: Bench, tmp_path: pathlib.Path) -> None:
    """The file is written every 5 s, so that a consumer that is killed repeats little; the broker gets no offsets."""
    bench.broker.answers[PULL] = Feed(pulled(1, records(0, 1)), pulled(2, records(1, 1)))
    inbox, path = Inbox(), tmp_path / "10.0.0.1@DEFAULT" / "cg" / "offsets.json"
    async with bench.listening(inbox, is_broadcast=True, offset_directory=str(tmp_path), client_host="10.0.0.1"):
        await inbox.wait_for(2)
        await bench.elapse_until(lambda: path.exists() and b":2\n" in path.read_bytes())
    assert bench.broker.asked(COMMIT) == []
    assert {pull.commit_offset for pull in bench.pulls()} == {0}


async def test_failed_message_is_dropped(join: Join, producer: Producer, caplog: pytest.LogCaptureFixture) -> None:
    """There is no retry topic for one member's failure; the queue goes on."""
    queue = (await producer.send(Message("T", b"bad"))).queue
    await producer.send(Message("T", b"good"), queue=queue)
    inbox = Inbox()

    async def refuse_bad(messages: list[ReceivedMessage]) -> ConsumeResult:
        await inbox(messages)
        return ConsumeResult.RETRY if messages[0].body == b"bad" else ConsumeResult.SUCCESS

    async with join(refuse_bad):
        await inbox.wait_for(2)
    assert "which failed: broadcast messages are not retried" in caplog.text
    again = Inbox()
    await producer.send(Message("T", b"next"), queue=queue)
    async with join(again):
        await again.wait_for(1)
    assert again.bodies == Counter([b"next"])


async def test_unreadable_offsets_stop_the_start(join: Join, tmp_path: pathlib.Path) -> None:
    """To begin anew in silence would repeat or lose messages; the error names the file."""
    path = tmp_path / "10.0.0.1@DEFAULT" / "cg" / "offsets.json"
    path.parent.mkdir(parents=True)
    path.write_text("{")
    with pytest.raises(ConfigError, match=r"offsets\.json cannot be read"):
        await join(Inbox()).__aenter__()


async def test_broadcast_may_be_orderly(address: str, producer: Producer, tmp_path: pathlib.Path) -> None:
    """Without locks, since every member has its own copy; a message that fails comes again before the next."""
    queue = (await producer.send(Message("T", b"0"))).queue
    await producer.send(Message("T", b"1"), queue=queue)
    inbox, failures = Inbox(), iter([ConsumeResult.RETRY])

    async def fail_once(messages: list[ReceivedMessage]) -> ConsumeResult:
        await inbox(messages)
        return next(failures, ConsumeResult.SUCCESS)

    consumer = push_consumer(
        address, fail_once, is_broadcast=True, is_orderly=True, pause_ms=10, offset_directory=str(tmp_path / "offsets")
    )
    async with consumer:
        await inbox.wait_for(3)
    assert [message.body for message in inbox.messages] == [b"0", b"0", b"1"]
