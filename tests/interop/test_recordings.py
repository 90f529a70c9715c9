"""``rocketlet record`` and ``replay`` on our servers and on the official ones, with messages of the official client."""

import json
import pathlib
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest
from command_line import run_in_process
from interop.clients import Outgoing, Producer, Received, TransactionProducer
from interop.driver import Driver
from interop.servers import Server
from interop.traffic import make_letters, make_orders, read_topic
from recordings import read_recording

QUEUES = 4
NOT_COPIED = {"DELAY", "REAL_TOPIC", "REAL_QID", "TRAN_MSG", "PGROUP", "TRANSACTION_CHECK_TIMES"}


class Essence(NamedTuple):
    """What is to be the same in a copy."""

    body: bytes
    tags: str | None
    keys: str | None
    flag: int
    own: frozenset[tuple[str, str]]


def essence(message: Received) -> Essence:
    """Return what is to be the same in a copy of a message."""
    own = {"größe", "outcome", "checked"}
    properties = frozenset(pair for pair in message.properties.items() if pair[0] in own)
    return Essence(message.body, message.tags, message.keys, message.flag, properties)


def by_queue(messages: Sequence[Received]) -> dict[int, list[Essence]]:
    """Return the messages of each queue in their order."""
    found: defaultdict[int, list[Essence]] = defaultdict(list)
    for message in messages:
        found[message.queue_id].append(essence(message))
    return dict(found)


@pytest.fixture
def done(either: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Return a call that runs ``rocketlet ARGUMENTS`` here, expects that it works, and returns what it prints."""
    monkeypatch.setenv("NAMESRV_ADDR", either.namesrv)

    def run(command: str, *arguments: object) -> str:
        code, out, err = run_in_process(capsys, command)(*arguments)
        assert code == 0, out + err
        return out

    return run


def test_traffic_of_the_official_client_is_played_back(
    java: Driver, either: Server, done: Callable[..., str], new_name: Callable[[], str], tmp_path: pathlib.Path
) -> None:
    """Single, batched, compressed, delayed and transactional messages come as they came the first time, and at once."""
    topic, copy, path = new_name(), new_name(), tmp_path / "file.rec"
    for name in (topic, copy):
        done("topic", "create", name, "--queues", QUEUES)
    orders, letters = make_orders()[:40], make_letters()[-10:]
    with Producer(java, namesrv=either.namesrv) as producer:
        producer.send_all(topic, *orders[:20])
        producer.send_all(topic, *orders[20:], mode="batch")
        producer.send_all(topic, *letters)
        producer.send_all(topic, Outgoing(b"late", delay_level=1, tags="late"))
    with TransactionProducer(java, namesrv=either.namesrv, group=new_name(), topic=topic) as producer:
        producer.send(topic, b"paid", outcome="commit", tags="paid")
        producer.send(topic, b"not paid", outcome="rollback")
    count = len(orders) + len(letters) + 2
    [summary] = [json.loads(done("record", topic, "--to", path, "--from", "begin", "--count", count, "--json"))]
    assert summary["topics"] == {topic: count}
    assert Counter(each.body for each in read_recording(path))[b"late"] == 1

    assert f"{count} of {count} messages sent" in done("replay", path, "--at-once", "--topic-map", f"{topic}={copy}")
    first, second = read_topic(java, either.namesrv, topic), read_topic(java, either.namesrv, copy)
    assert by_queue(second) == by_queue(first)
    assert not {name for message in second for name in message.properties} & NOT_COPIED
    assert not {message.msg_id for message in second} & {message.msg_id for message in first}
