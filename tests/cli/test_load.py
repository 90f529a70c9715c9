"""``rocketlet dump`` and ``rocketlet load``: from a store to a file to a broker, and back."""

import json
import pathlib
from collections import Counter, defaultdict
from collections.abc import Mapping

import pytest
from logbuilder import LogBuilder, write_dump

from rocketlet.cli.main import main
from rocketlet.client import MessageQueue
from rocketlet.common.message import ReceivedMessage
from rocketlet.export.write.dump_file import DumpedMessage, DumpReader, DumpWriter
from rocketlet.testing.broker_thread import RocketmqBroker

QUEUES = 4


def run(*arguments: object) -> int | str | None:
    """Run the command line in this process and return the exit code."""
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return ended.value.code


def read(path: pathlib.Path) -> list[DumpedMessage]:
    """Return the messages of a dump."""
    with DumpReader(str(path)) as dump:
        return [message for block in dump.blocks() for message in block.messages]


def essence(messages: list[DumpedMessage]) -> list[list[tuple[object, ...]]]:
    """Return by queue, whatever its number, what is to be the same wherever messages are."""
    queues: dict[int, list[tuple[object, ...]]] = defaultdict(list)
    for each in sorted(messages, key=lambda each: each.queue_offset):
        queues[each.queue_id].append((each.msg_id, each.body, each.flag, _lasting(each.properties)))
    return sorted(queues.values(), key=repr)


def _lasting(properties: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset(pair for pair in properties.items() if pair[0] != "WAIT")


@pytest.fixture
def dump(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return a dump of 3,000 messages in three blocks, which lay in four queues of topic Old; one has no body."""
    return write_dump(tmp_path / "file.dump", map(message, range(3_000)))


def message(number: int, body: bytes | None = b"body") -> DumpedMessage:
    """Return the message of that number."""
    properties = {"KEYS": f"k{number}", "UNIQ_KEY": f"{number:032X}", "WAIT": "true"}
    hosts, times = ("192.0.2.1:1", "192.0.2.2:2"), (1_700_000_000_000, 1_700_000_000_001)
    body = body and b"%d" % number
    place = number % QUEUES, number // QUEUES, 100 * number
    return DumpedMessage("Old", *place, f"{number:032X}", f"B{number}", properties, body, 3, 0, *times, *hosts, 0, 0, 9)


def by_queue(messages: list[ReceivedMessage]) -> dict[MessageQueue, list[int]]:
    """Return the numbers of messages by the queue that they came to."""
    found: dict[MessageQueue, list[int]] = defaultdict(list)
    for each in messages:
        found[each.queue].append(int(each.body))
    return found


def test_dump_of_what_was_loaded_is_the_dump(
    dump: pathlib.Path, rocketmq_broker: RocketmqBroker, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bodies, ids, flags, keys and properties come back, in the order of their queues; the second time all of it."""
    one, other = rocketmq_broker.topic(queues=QUEUES), rocketmq_broker.topic(queues=QUEUES)
    assert run("load", dump, "--namesrv", rocketmq_broker.nameserver, "--topic-map", f"Old={one}") == 0
    assert "3000 messages stored, 0 refused, 0 of other topics" in capsys.readouterr().out
    assert run("dump", rocketmq_broker.store, "--to", tmp_path / "1.dump", "--topic", one) == 0
    first = read(tmp_path / "1.dump")
    origin = [(each.properties["DUMPED_MSG_ID"], each.properties["DUMPED_STORE_TIMESTAMP"]) for each in first]
    assert sorted(origin) == [(f"{number:032X}", "1700000000001") for number in range(3_000)]
    assert sorted((each.msg_id, each.body, each.flag) for each in first) == [
        (each.msg_id, each.body, each.flag) for each in read(dump)
    ]

    assert (
        run("load", tmp_path / "1.dump", "--namesrv", rocketmq_broker.nameserver, "--topic-map", f"{one}={other}") == 0
    )
    assert run("dump", rocketmq_broker.store, "--to", tmp_path / "2.dump", "--topic", other) == 0
    assert essence(read(tmp_path / "2.dump")) == essence(first)


def test_each_queue_keeps_its_order(dump: pathlib.Path, rocketmq_broker: RocketmqBroker) -> None:
    """The messages of a queue are in one queue, as they were; small parts and many requests do not change that."""
    topic = rocketmq_broker.topic(queues=3)
    assert (
        run("load", dump, "--namesrv", rocketmq_broker.nameserver, "--topic-map", f"Old={topic}", "--in-flight", 64)
        == 0
    )
    for numbers in by_queue(rocketmq_broker.messages(topic)).values():
        for queue in range(QUEUES):
            part = [number for number in numbers if number % QUEUES == queue]
            assert part == sorted(part)
            assert len(part) in (0, 3_000 // QUEUES)


def test_loading_goes_on_where_it_ended(
    dump: pathlib.Path, rocketmq_broker: RocketmqBroker, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a dump that is cut, the whole blocks are stored and counted; the whole dump then brings the rest, once."""
    topic, whole, state = rocketmq_broker.topic(), dump.read_bytes(), tmp_path / "state"
    command = ["load", dump, "--namesrv", rocketmq_broker.nameserver, "--topic-map", f"Old={topic}", "--state", state]
    dump.write_bytes(whole[: len(whole) // 2])
    assert run(*command) == 1
    printed = capsys.readouterr()
    assert "is not complete: it ends at byte" in printed.err
    assert "1000 messages stored, 0 refused" in printed.out
    assert "all before message 1000 are done with; --skip 1000 goes on from there" in printed.out
    assert json.loads(state.read_text())["next"] == 1000

    dump.write_bytes(whole)
    assert run(*command) == 0
    assert "2000 messages stored" in capsys.readouterr().out
    assert Counter(int(each.body) for each in rocketmq_broker.messages(topic)) == Counter(range(3_000))
    assert run(*command) == 0
    assert "0 messages stored" in capsys.readouterr().out


def test_part_of_a_dump_can_be_loaded(
    dump: pathlib.Path, rocketmq_broker: RocketmqBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """``--skip`` begins in the middle of a block; messages of topics that are not asked for are counted."""
    topic = rocketmq_broker.topic()
    command = ["load", dump, "--namesrv", rocketmq_broker.nameserver, "--topic-map", f"Old={topic}"]
    assert run(*command, "--skip", 2_990) == 0
    assert sorted(int(each.body) for each in rocketmq_broker.messages(topic)) == list(range(2_990, 3_000))
    assert run(*command, "--topic", "Another") == 0
    assert "0 messages stored, 0 refused, 3000 of other topics" in capsys.readouterr().out
    assert run(*command, "--skip", 3_001) == 2
    assert "the dump has 3000 messages, it cannot begin with 3001" in capsys.readouterr().err


def test_message_that_nobody_takes_is_named_and_passed_over(
    tmp_path: pathlib.Path, rocketmq_broker: RocketmqBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others are stored; the exit code tells that one is missing."""
    topic = rocketmq_broker.topic()
    writer = DumpWriter(str(tmp_path / "file.dump"))
    writer.add([message(0), message(1, body=None), message(2, body=b""), message(3)])
    writer.close()
    command = ["load", tmp_path / "file.dump", "--namesrv", rocketmq_broker.nameserver, "--topic-map", f"Old={topic}"]
    assert run(*command) == 1
    printed = capsys.readouterr()
    assert "message 1 cannot be sent: its body could not be read when it was dumped" in printed.err
    assert "message 2 cannot be sent: body is empty" in printed.err
    assert "2 messages stored, 2 refused" in printed.out
    assert sorted(int(each.body) for each in rocketmq_broker.messages(topic)) == [0, 3]


def test_check_counts_and_sends_nothing(dump: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No name server is needed; of a damaged dump the sound blocks are counted, and the exit code is 1."""
    assert run("load", dump, "--check") == 0
    assert capsys.readouterr().out == f"  Old: 3000 messages\n{dump}: 3000 messages\n"
    data = bytearray(dump.read_bytes())
    data[len(data) // 2] ^= 1
    dump.write_bytes(data)
    assert run("load", dump, "--check") == 1
    printed = capsys.readouterr()
    assert "Old: 1000 messages" in printed.out
    assert "is damaged in the block at byte" in printed.err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--namesrv", "nowhere"], "name server 'nowhere' is not of the form host:port"),
        (["--namesrv", "127.0.0.1:1"], "no name server answers"),
        (["--namesrv", "127.0.0.1:1", "--access-key", "a"], "--access-key and --secret-key need each other"),
        (["--namesrv", "127.0.0.1:1", "--tls-trust", "x"], "--tls-trust is given, but --tls is not"),
        (["--topic-map", "a"], "'a' is not OLD=NEW"),
        (["--topic-map", "a=b", "--topic-map", "a=c"], "a is to be both b and c"),
        (["--rate", "0"], "--rate"),
    ],
)
def test_wrong_option_is_named(
    dump: pathlib.Path, capsys: pytest.CaptureFixture[str], arguments: list[str], text: str
) -> None:
    """One line says what is wrong, and the exit code is 2."""
    assert run("load", dump, *arguments) == 2
    printed = capsys.readouterr()
    assert text in printed.err
    assert printed.out == ""


def test_state_of_another_dump_is_refused(
    dump: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would leave messages out."""
    state = tmp_path / "state"
    state.write_text('{"dump": "another", "next": 1000}')
    assert run("load", dump, "--namesrv", "127.0.0.1:1", "--state", state) == 2
    assert f"--state {state} is that of another dump" in capsys.readouterr().err


def test_dump_of_a_part_of_a_damaged_store(
    log: LogBuilder, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Filters are those of the export; damage is told, and what comes before it is dumped."""
    for number in range(100):
        log.add(b"%d" % number, topic=f"T{number % 2}", properties={"TAGS": f"tag{number % 4}"})
    store, target = log.save(), tmp_path / "x.dump"
    arguments = ["dump", store, "--to", target, "--topic", "T0", "--tag", "tag2"]
    assert run(*arguments) == 0
    assert [each.body for each in read(target)] == [b"%d" % number for number in range(2, 100, 4)]
    assert run(*arguments) == 2
    assert "exists; --overwrite replaces it" in capsys.readouterr().err

    with log.files()[1].open("r+b") as file:
        file.seek(20)
        file.write(b"\xff" * 8)
    assert run(*arguments, "--overwrite") == 1
    assert "is dumped up to damage only" in capsys.readouterr().err
    assert 0 < len(read(target)) < 25
