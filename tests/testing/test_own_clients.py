"""Sending and receiving by the fixture itself, from tests without an event loop."""

import pathlib

import pytest

from rocketlet.testing import RocketmqBroker


def test_messages_go_in_and_out(rocketmq_broker: RocketmqBroker) -> None:
    """What is sent is received once by a group, and again by another."""
    topic, group = rocketmq_broker.topic(queues=1), rocketmq_broker.group()
    result = rocketmq_broker.send(topic, "Grüße", tags="a", keys=["k"], properties={"p": "1"})
    rocketmq_broker.send(topic, json={"id": 42}, tags="b")
    rocketmq_broker.send(topic, b"\xff", tags="a")
    (first,) = rocketmq_broker.receive(topic, group=group)
    assert (first.body.decode(), first.message_id, first.keys, first.properties["p"]) == (
        "Grüße", result.message_id, ("k",), "1",
    )  # fmt: skip
    second, third = rocketmq_broker.receive(topic, 2, group=group)
    assert [second.body, third.body] == [b'{"id": 42}', b"\xff"]
    assert rocketmq_broker.lag(group).total == 0
    tagged = rocketmq_broker.receive(topic, 2, group=rocketmq_broker.group(), tags="a")
    assert [message.body for message in tagged] == ["Grüße".encode(), b"\xff"]
    with pytest.raises(TimeoutError, match=f"0 of 1 messages of '{topic}' came in 100 ms"):
        rocketmq_broker.receive(topic, group=group, timeout=0.1)


def test_message_has_one_body(rocketmq_broker: RocketmqBroker) -> None:
    """A message without a body, or with two, is a TypeError."""
    with pytest.raises(TypeError, match="a body or json, one of them"):
        rocketmq_broker.send("orders")
    with pytest.raises(TypeError, match="a body or json, one of them"):
        rocketmq_broker.send("orders", "text", json=1)


def test_delayed_message_waits_for_the_clock(rocketmq_broker: RocketmqBroker) -> None:
    """A message that is sent for later comes when the broker's time is moved."""
    topic = rocketmq_broker.topic()
    rocketmq_broker.send(topic, "late", delay_ms=60_000)
    assert rocketmq_broker.messages(topic) == []
    rocketmq_broker.clock.advance(minutes=2)
    rocketmq_broker.assert_sent(topic, body="late", times=1)


async def test_receiving_is_refused_on_a_loop(rocketmq_broker: RocketmqBroker) -> None:
    """On an event loop, consumers and awaited waits are to be used."""
    with pytest.raises(RuntimeError, match=r"receive\(\) would block this event loop"):
        rocketmq_broker.receive("orders")


def test_file_is_loaded(rocketmq_broker: RocketmqBroker, tmp_path: pathlib.Path) -> None:
    """Each line of a file is sent, to its queue if it names one."""
    topic = rocketmq_broker.topic(queues=2)
    path = tmp_path / "orders.jsonl"
    path.write_text(
        f'{{"topic": "{topic}", "json": {{"id": 1}}, "tags": "new", "keys": ["1"], "queue": 1}}\n\n'
        f'{{"topic": "{topic}", "body": "two", "properties": {{"shop": "x"}}, "queue": 0}}\n'
        f'{{"topic": "{topic}", "base64": "/w==", "queue": 1}}\n'
    )
    assert rocketmq_broker.load(path) == 3
    stored = rocketmq_broker.messages(topic)
    assert [(message.queue.queue_id, message.body) for message in stored] == [
        (0, b"two"),
        (1, b'{"id": 1}'),
        (1, b"\xff"),
    ]
    rocketmq_broker.assert_sent(topic, json={"id": 1}, tags="new", keys=["1"], times=1)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"topic": "t"', "line 2: Expecting"),
        ("[]", "line 2: expected an object"),
        ('{"body": "x"}', "line 2: a message has a topic and one of body, json and base64"),
        ('{"topic": "t", "body": "x", "json": 1}', "line 2: a message has a topic and one of"),
        ('{"topic": "t", "body": "x", "tag": "a"}', r"line 2: unknown fields \['tag'\]"),
        ('{"topic": "t", "base64": "=x"}', "line 2: "),
    ],
)
def test_bad_line_is_named_and_nothing_is_sent(
    rocketmq_broker: RocketmqBroker, tmp_path: pathlib.Path, line: str, said: str
) -> None:
    """A file with a line that is no message is refused whole."""
    topic = rocketmq_broker.topic()
    path = tmp_path / "bad.jsonl"
    path.write_text(f'{{"topic": "{topic}", "body": "good"}}\n{line}\n')
    with pytest.raises(ValueError, match=f"bad.jsonl, {said}"):
        rocketmq_broker.load(path)
    assert rocketmq_broker.messages(topic) == []
