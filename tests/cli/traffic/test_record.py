"""``rocketlet record``: what is in the file, and how it ends."""

import asyncio
import json
import pathlib
import signal
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import pytest
from command_line import COMMAND, run_in_process
from polling import ask_until
from recordings import read_recording

from rocketlet.client import Message, MessageQueue, Producer
from rocketlet.testing import RocketmqBroker

Run = Callable[..., tuple[object, str, str]]
Spawn = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def record(rocketmq_broker: RocketmqBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a call that runs ``rocketlet record ARGUMENTS`` here."""
    monkeypatch.setenv("NAMESRV_ADDR", rocketmq_broker.nameserver)
    return run_in_process(capsys, "record")


@pytest.fixture
def spawn(rocketmq_broker: RocketmqBroker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Spawn]:
    """Return a call that starts ``rocketlet record ARGUMENTS``, and returns once it says that it records."""
    monkeypatch.setenv("NAMESRV_ADDR", rocketmq_broker.nameserver)
    with ExitStack() as started:

        def start(*arguments: object) -> subprocess.Popen[bytes]:
            command = [*COMMAND, "record", *map(str, arguments)]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            started.enter_context(process)
            started.callback(process.kill)
            assert process.stderr is not None
            assert process.stderr.readline().startswith(b"rocketlet: recording ")
            return process

        yield start


async def send(broker: RocketmqBroker, topic: str, numbers: Sequence[int], queues: int = 4) -> None:
    """Send messages whose bodies are numbers to a topic, each to the queue of its remainder."""
    async with Producer("shop", broker.nameserver) as producer:
        for number in numbers:
            queue = MessageQueue(topic, "broker-a", number % queues)
            await producer.send(Message(topic, b"%d" % number, tags="paid", keys=[f"k{number}"]), queue=queue)


def numbers_in(path: pathlib.Path) -> list[int]:
    """Return the numbers of a recording in its order."""
    return [int(message.body) for message in read_recording(path)]


def test_what_topics_hold_is_recorded_by_store_time(
    record: Run, rocketmq_broker: RocketmqBroker, tmp_path: pathlib.Path
) -> None:
    """Over all queues and topics, each message once, as it was sent; nothing but the file and one line is made."""
    one, other, path = rocketmq_broker.topic(), rocketmq_broker.topic(), tmp_path / "file.rec"
    asyncio.run(send(rocketmq_broker, one, range(40)))
    asyncio.run(send(rocketmq_broker, other, range(40, 50)))
    code, out, err = record(one, other, "--to", path, "--from", "begin", "--until", "end")
    assert (code, out) == (0, f"{path}: 50 messages of 2 topics, {path.stat().st_size} bytes\n")
    assert err == f"rocketlet: recording {one}, {other} to {path}\n"
    found = read_recording(path)
    assert sorted(int(message.body) for message in found) == list(range(50))
    times = [message.store_timestamp for message in found]
    assert times == sorted(times)
    queues: defaultdict[int, list[int]] = defaultdict(list)
    for message in found[:40]:
        queues[message.queue_id].append(message.queue_offset)
    assert queues == {queue: list(range(10)) for queue in range(4)}
    first = next(message for message in found if message.body == b"0")
    assert (first.topic, first.broker_name, first.tags, first.keys) == (one, "broker-a", "paid", ("k0",))
    assert len(first.properties["UNIQ_KEY"]) == 32


@pytest.mark.parametrize(
    ("options", "expected"),
    [(("--count", 7), 7), (("--until", "+1s", "--count", 10), 10), (("--until", "end", "--count", 100), 10)],
)
def test_count_ends_it(
    record: Run, rocketmq_broker: RocketmqBroker, tmp_path: pathlib.Path, options: tuple[object, ...], expected: int
) -> None:
    """With exactly so many messages, be they there already, or as many as there are."""
    topic, path = rocketmq_broker.topic(), tmp_path / "file.rec"
    asyncio.run(send(rocketmq_broker, topic, range(10)))
    code, out, _ = record(topic, "--to", path, "--from", "begin", *options, "--json")
    assert code == 0
    assert json.loads(out) == {
        "file": str(path),
        "messages": expected,
        "bytes": path.stat().st_size,
        "topics": {topic: expected},
    }
    assert len(numbers_in(path)) == expected


def test_times_limit_it(record: Run, rocketmq_broker: RocketmqBroker, tmp_path: pathlib.Path) -> None:
    """A message of the time itself is in what begins with it, and not in what ends with it."""
    topic, path = rocketmq_broker.topic(), tmp_path / "file.rec"
    asyncio.run(send(rocketmq_broker, topic, range(20)))
    record(topic, "--to", path, "--from", "begin", "--until", "end")
    all_messages = read_recording(path)
    middle_ms = all_messages[10].store_timestamp
    before = sorted(int(each.body) for each in all_messages if each.store_timestamp < middle_ms)
    after = sorted(int(each.body) for each in all_messages if each.store_timestamp >= middle_ms)
    for options, expected in (
        (("--from", "begin", "--until", f"@{middle_ms}"), before),
        (("--from", f"@{middle_ms}", "--until", "end"), after),
    ):
        assert record(topic, "--to", path, "--overwrite", *options)[0] == 0
        assert sorted(numbers_in(path)) == expected


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_it(
    spawn: Spawn, rocketmq_broker: RocketmqBroker, tmp_path: pathlib.Path, number: signal.Signals
) -> None:
    """What comes from the line on that it records, and nothing from before; then it says what it has."""
    topic, path = rocketmq_broker.topic(), tmp_path / "file.rec"
    asyncio.run(send(rocketmq_broker, topic, range(10)))
    recording = spawn(topic, "--to", path)
    asyncio.run(send(rocketmq_broker, topic, range(10, 20)))
    wait_for(path, 10)
    recording.send_signal(number)
    out, err = recording.communicate()
    assert (recording.returncode, err) == (0, b"")
    assert out.decode() == f"{path}: 10 messages of 1 topic, {path.stat().st_size} bytes\n"
    assert sorted(numbers_in(path)) == list(range(10, 20))


def test_history_goes_over_into_what_comes(
    spawn: Spawn, rocketmq_broker: RocketmqBroker, tmp_path: pathlib.Path
) -> None:
    """From the beginning on nothing is missing and nothing is there twice."""
    topic, path = rocketmq_broker.topic(), tmp_path / "file.rec"
    asyncio.run(send(rocketmq_broker, topic, range(100)))
    recording = spawn(topic, "--to", path, "--from", "begin", "--count", 200)
    asyncio.run(send(rocketmq_broker, topic, range(100, 200)))
    assert recording.wait() == 0
    assert sorted(numbers_in(path)) == list(range(200))


def test_killed_recorder_leaves_what_it_had(
    spawn: Spawn, rocketmq_broker: RocketmqBroker, tmp_path: pathlib.Path
) -> None:
    """Each message is in the file as soon as it has come."""
    topic, path = rocketmq_broker.topic(), tmp_path / "file.rec"
    recording = spawn(topic, "--to", path)
    asyncio.run(send(rocketmq_broker, topic, range(50)))
    wait_for(path, 50)
    recording.kill()
    recording.wait()
    assert sorted(numbers_in(path)) == list(range(50))


def wait_for(path: pathlib.Path, count: int) -> None:
    """Return when a recording that is written has so many messages."""
    ask_until(lambda: len(read_recording(path)), lambda found: found >= count)


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (("--from", "3"), 2, "an offset says nothing of several queues"),
        (("--until", "begin"), 2, "nothing comes until the beginning"),
        (("--until", "end"), 2, "--until end needs --from begin or a time"),
        (("--count", "0"), 2, "--count"),
        (("--namesrv", "127.0.0.1:1"), 3, "no server answers"),
        (("--from", "begin", "--namesrv", "127.0.0.1:1"), 3, "no server answers"),
    ],
)
def test_wrong_option_is_named(
    record: Run, tmp_path: pathlib.Path, options: tuple[str, ...], code: int, text: str
) -> None:
    """In one line, and no file is made."""
    path = tmp_path / "file.rec"
    found, out, err = record("orders", "--to", path, *options)
    assert (found, out) == (code, "")
    assert text in err
    assert err.count("\n") == 1
    assert not path.exists()


def test_topic_or_file_that_cannot_be_used(
    record: Run, rocketmq_broker: RocketmqBroker, tmp_path: pathlib.Path
) -> None:
    """A topic that is not there makes no file; a file that is there is kept unless it is to be replaced."""
    topic, path = rocketmq_broker.topic(), tmp_path / "file.rec"
    for options in ((), ("--from", "begin")):
        code, _, err = record(topic, "no-such-topic", "--to", path, *options)
        assert (code, path.exists()) == (1, False)
        assert "no-such-topic" in err
    path.write_bytes(b"kept")
    code, _, err = record(topic, "--to", path, "--from", "begin", "--until", "end")
    assert (code, path.read_bytes()) == (2, b"kept")
    assert err == f"rocketlet: {path} exists; --overwrite replaces it\n"
    assert record(topic, "--to", path, "--from", "begin", "--until", "end", "--overwrite")[0] == 0
    assert read_recording(path) == []
