"""``rocketlet replay``: what is sent, where to, when, and what is refused."""

import json
import pathlib
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace

import pytest
from command_line import run_in_process
from recordings import BEGUN_MS, read_recording, stored, write_recording

from rocketlet.cli.traffic.recording import Recorded, RecordedMessage
from rocketlet.cli.traffic.replay import Pacing, copy_of, describe_moves, match_queues
from rocketlet.client import MessageQueue, ReceivedMessage
from rocketlet.remoting.transport.event_loop import TaskScope
from rocketlet.testing import ManualClock, RocketmqBroker

Run = Callable[..., tuple[object, str, str]]


@pytest.fixture
def run(rocketmq_broker: RocketmqBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a call that runs ``rocketlet replay ARGUMENTS`` here."""
    monkeypatch.setenv("NAMESRV_ADDR", rocketmq_broker.nameserver)
    return run_in_process(capsys, "replay")


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return a recording of 400 messages in four queues of topic Old, and ten of topic Other, one each second."""
    old = [stored(number, queue_id=number % 4, after_ms=1_000 * number) for number in range(400)]
    other = [stored(number, topic="Other", after_ms=1_000 * number) for number in range(400, 410)]
    return write_recording(tmp_path / "file.rec", [*old, *other])


def by_queue(messages: Sequence[ReceivedMessage]) -> dict[int, list[int]]:
    """Return the numbers of messages by the queue that they came to."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    for each in messages:
        found[each.queue.queue_id].append(int(each.body))
    return dict(found)


def test_messages_come_as_they_were(run: Run, path: pathlib.Path, rocketmq_broker: RocketmqBroker) -> None:
    """Queue, order, body, tag, keys, flag and properties; each with an id of its own, the second time as well."""
    one, other = rocketmq_broker.topic(), rocketmq_broker.topic(queues=1)
    names = ("--topic-map", f"Old={one}", "--topic-map", f"Other={other}")
    for _ in range(2):
        code, out, _ = run(path, "--at-once", *names)
        assert (code, out) == (0, f"{path}: 410 of 410 messages sent\n")
    found = rocketmq_broker.messages(one)
    assert by_queue(found) == {queue: 2 * list(range(queue, 400, 4)) for queue in range(4)}
    assert by_queue(rocketmq_broker.messages(other)) == {0: 2 * list(range(400, 410))}
    for each in found:
        number = int(each.body)
        assert (each.tags, each.keys, each.flag) == ("paid", ("every", f"k{number}"), -number)
        assert each.properties["größe"] == "5 公斤"
    assert len({each.message_id for each in found}) == 800
    assert not {each.message_id for each in found} & {f"{number:032X}" for number in range(400)}


def test_fewer_queues_are_told(run: Run, path: pathlib.Path, rocketmq_broker: RocketmqBroker) -> None:
    """All messages of a queue stay together and in their order."""
    topic = rocketmq_broker.topic(queues=3)
    code, _, err = run(path, "--at-once", "--topic", "Old", "--topic-map", f"Old={topic}")
    assert code == 0
    assert f"topic {topic} has 3 queues at broker-a: of the recording's Old, queue 3 becomes 0\n" in err
    found = by_queue(rocketmq_broker.messages(topic))
    assert [each for each in found[0] if each % 4 == 3] == list(range(3, 400, 4))
    assert [each for each in found[0] if each % 4 == 0] == list(range(0, 400, 4))
    assert (found[1], found[2]) == (list(range(1, 400, 4)), list(range(2, 400, 4)))


def test_only_some_topics_are_sent(run: Run, path: pathlib.Path, rocketmq_broker: RocketmqBroker) -> None:
    """A topic that is not in the recording is a mistake."""
    topic = rocketmq_broker.topic(queues=1)
    code, out, _ = run(path, "--at-once", "--topic", "Other", "--topic-map", f"Other={topic}", "--json")
    assert (code, json.loads(out)) == (0, {"file": str(path), "messages": 10, "sent": 10, "refused": 0})
    assert len(rocketmq_broker.messages(topic)) == 10
    for options in (("--topic", "Nope"), ("--topic-map", "Nope=x")):
        code, out, err = run(path, *options)
        assert (code, out) == (2, "")
        assert err == f"rocketlet: {options[0]} Nope: the recording has Old, Other\n"


def test_what_servers_and_clients_wrote_is_not_sent_again() -> None:
    """No delay, transaction, retry, reply or mark of a broker; what the application and its sharding need stays."""
    kept = {"__SHARDINGKEY": "7", "mine": "x", "DLQ_ORIGIN_TOPIC": "orders"}
    dropped = dict.fromkeys(
        (
            *("UNIQ_KEY", "WAIT", "DELAY", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_OUT_MS", "REAL_TOPIC"),
            *("TRAN_MSG", "PGROUP", "RECONSUME_TIME", "RETRY_TOPIC", "CORRELATION_ID", "REPLY_TO_CLIENT", "MSG_REGION"),
            *("TRACE_ON", "CLUSTER", "POP_CK", "INNER_NUM", "__CRC32#"),
        ),
        "1",
    )
    message = replace(stored(1), properties={**kept, **dropped})
    copy = copy_of(RecordedMessage.of(message), "New")
    assert (copy.topic, copy.properties, copy.is_late) == ("New", kept, False)
    assert (copy.tags, copy.keys, copy.flag, copy.body) == ("paid", ("every", "k1"), -1, b"1")


def queues(topic: str, **numbers: int) -> list[MessageQueue]:
    """Return the queues of a topic, so many at each broker."""
    return [MessageQueue(topic, broker, number) for broker, count in numbers.items() for number in range(count)]


@pytest.mark.parametrize(
    ("sources", "targets", "expected", "moves"),
    [
        ({"a": 2}, {"a": 2}, "a0 a1", ""),
        ({"a": 2}, {"a": 4, "b": 4}, "a0 a1", ""),
        ({"b": 2}, {"a": 4, "b": 4}, "b0 b1", ""),
        ({"a": 2, "b": 2}, {"x": 2, "y": 2}, "x0 x1 y0 y1", ""),
        ({"a": 2, "b": 2}, {"x": 2}, "x0 x1 x0 x1", ""),
        ({"a": 1, "b": 4}, {"b": 3, "c": 1}, "b0 b0 b1 b2 b0", "3 becomes 0"),
        ({"a": 4}, {"x": 2}, "x0 x1 x0 x1", "2 becomes 0, 3 becomes 1"),
        ({"a": 12}, {"x": 1}, " ".join(["x0"] * 12), ", ".join(f"{n} becomes 0" for n in range(1, 9)) + ", …"),
    ],
)
def test_queues_are_matched(sources: dict[str, int], targets: dict[str, int], expected: str, moves: str) -> None:
    """By broker name or their order, and by number, or what remains of it."""
    old = queues("Old", **sources)
    matched = match_queues(reversed(old), queues("New", **targets))
    assert " ".join(f"{matched[queue].broker_name}{matched[queue].queue_id}" for queue in old) == expected
    assert {queue.topic for queue in matched.values()} == {"New"}
    assert describe_moves(matched) == moves


@pytest.mark.parametrize(
    ("speed", "expected"),
    [
        (1, [(0, [0, 1]), (1_000, [2, 3]), (5_000, [4])]),
        (10, [(0, [0, 1]), (100, [2, 3]), (500, [4])]),
        (0.5, [(0, [0, 1]), (2_000, [2, 3]), (10_000, [4])]),
        (None, [(0, [0, 1, 2, 3, 4])]),
    ],
)
async def test_messages_are_due_as_they_were_stored(speed: float | None, expected: list[tuple[int, list[int]]]) -> None:
    """What is late or of the same moment comes along with the one before it."""
    clock = ManualClock()
    begun_ms = clock.monotonic_ms()
    times = [0, 0, 1_000, 400, 5_000]
    piece = [
        Recorded(number, 0, RecordedMessage.of(stored(number, after_ms=after_ms)))
        for number, after_ms in enumerate(times)
    ]

    async def pieces() -> AsyncGenerator[Sequence[Recorded]]:
        yield piece

    async def note() -> list[tuple[int, list[int]]]:
        return [
            (clock.monotonic_ms() - begun_ms, [recorded.number for recorded in due])
            async for due in Pacing(speed, clock).due(pieces())
        ]

    async with TaskScope() as tasks:
        noting = tasks.start(note(), name="note")
        while not noting.done():
            await clock.elapse(100)
    assert noting.result() == expected


async def test_slow_cluster_moves_no_later_message() -> None:
    """After a while in which nothing could be sent, what is late goes at once, and the rest at its time."""
    clock = ManualClock()
    pacing = Pacing(1, clock)
    assert pacing.left_ms(BEGUN_MS) == 0
    clock.advance(2_500)
    assert [pacing.left_ms(BEGUN_MS + after_ms) for after_ms in (1_000, 2_000, 3_000, 60_000)] == [0, 0, 500, 57_500]


def test_dry_run_lists(run: Run, path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What would be sent, where it was, and when; no cluster is asked."""
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:1")
    code, out, err = run(path, "--dry-run", "--topic-map", "Other=New", "--speed", "2")
    lines = out.splitlines()
    assert (code, err, len(lines)) == (0, "", 410)
    assert lines[3] == "+1.500s Old broker-a:3@3 [paid] every k3 3"
    assert lines[-1] == "+204.500s New broker-a:0@409 [paid] every k409 409"
    code, out, _ = run(path, "--dry-run", "--topic", "Other", "--at-once", "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert (code, len(rows)) == (0, 10)
    assert rows[9] == {
        "after_ms": 0,
        "target": "Other",
        "topic": "Other",
        "broker": "broker-a",
        "queue": 0,
        "offset": 409,
        "tags": "paid",
        "keys": ["every", "k409"],
        "properties": {"größe": "5 公斤", "UNIQ_KEY": f"{409:032X}"},
        "born_at": "2023-11-14T22:20:08.999Z",
        "stored_at": "2023-11-14T22:20:09.000Z",
        "flag": -409,
        "size": 3,
        "body": "409",
    }


def test_cut_file_is_sent_up_to_the_cut(run: Run, path: pathlib.Path, rocketmq_broker: RocketmqBroker) -> None:
    """And it is told how much of it is left out."""
    topic, whole = rocketmq_broker.topic(queues=1), path.read_bytes()
    path.write_bytes(whole[:-5])
    code, out, err = run(path, "--at-once", "--topic", "Other", "--topic-map", f"Other={topic}")
    assert (code, out) == (0, f"{path}: 9 of 9 messages sent\n")
    left = len(whole) - 5 - write_recording(path.with_name("x"), []).stat().st_size
    assert f"rocketlet: {path} is cut in the middle of a message: its last " in err
    assert left > 0
    assert len(read_recording(path)) == 409


def test_damaged_file_is_not_sent(run: Run, path: pathlib.Path, rocketmq_broker: RocketmqBroker) -> None:
    """Nothing of it, though what comes before the damage is whole; the byte is named. A foreign file is a mistake."""
    topic, data = rocketmq_broker.topic(queues=4), bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    for options in ((), ("--dry-run",)):
        code, out, err = run(path, "--at-once", "--topic-map", f"Old={topic}", *options)
        assert (code, out) == (1, "")
        assert f"{path} is damaged at byte " in err
        assert "nothing was sent" in err
    assert rocketmq_broker.messages(topic) == []
    for content, text in ((b"PK\3\4", "is no recording of rocketlet: at byte 0 is b'PK"), (b"", "it is empty")):
        path.write_bytes(content)
        code, out, err = run(path)
        assert (code, out) == (2, "")
        assert text in err
    code, _, err = run(path.with_name("missing"))
    assert code == 2
    assert "missing cannot be read: No such file or directory" in err


def test_message_that_nobody_takes_is_named(run: Run, tmp_path: pathlib.Path, rocketmq_broker: RocketmqBroker) -> None:
    """The others are sent; the exit code tells that one is missing."""
    topic = rocketmq_broker.topic(queues=1)
    messages = [stored(0), replace(stored(1), body=b""), stored(2)]
    path = write_recording(tmp_path / "file.rec", messages)
    code, out, err = run(path, "--at-once", "--topic-map", f"Old={topic}")
    assert (code, out) == (1, f"{path}: 2 of 3 messages sent\n")
    assert "message 1 cannot be sent: body is empty" in err
    assert err.endswith("rocketlet: 1 messages were refused\n")
    assert by_queue(rocketmq_broker.messages(topic)) == {0: [0, 2]}


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (("--at-once", "--speed", "2"), 2, "--at-once and --speed cannot be used together"),
        (("--speed", "0"), 2, "--speed"),
        (("--topic-map", "a"), 2, "'a' is not OLD=NEW"),
        (("--namesrv", "127.0.0.1:1"), 3, "no server answers"),
        (("--topic-map", "Old=SCHEDULE_TOPIC_XXXX"), 2, "topic SCHEDULE_TOPIC_XXXX takes no messages of clients"),
        (("--topic-map", "Old=a b"), 2, "--topic-map Old=a b: "),
    ],
)
def test_wrong_option_is_named(run: Run, path: pathlib.Path, options: tuple[str, ...], code: int, text: str) -> None:
    """In one line, and nothing is sent."""
    found, out, err = run(path, *options)
    assert (found, out) == (code, "")
    assert text in err
    assert err.count("\n") == 1
