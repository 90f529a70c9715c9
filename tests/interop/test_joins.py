"""Consumers that join while the queues of their topic get their first messages: none may be skipped.

A Java consumer that finds no offset of its group asks where the queue ends, and begins there. A message that comes
between the two questions is lost to the group, on the Java broker too. ``ROCKETLET_JOIN_ROUNDS`` says how often it is
tried; the official broker is only counted.
"""

import os
import sys
from collections.abc import Callable

import pytest
from interop.clients import Admin, JoiningConsumer, Outgoing, Producer
from interop.driver import Driver
from interop.servers import BROKER_NAME, RocketletServer, Server
from interop.tap import Passed, Tap

from rocketlet.remoting.codec.request_codes import RequestCode

NewTopic = Callable[..., str]

ROUNDS = int(os.environ.get("ROCKETLET_JOIN_ROUNDS", "5"))
QUEUES = 64
SILENCE_MS = 5_000
FROM_LAST = {"consumeFromWhere": "CONSUME_FROM_LAST_OFFSET"}  # as official clients do unless told otherwise


@pytest.mark.feature("C7")
def test_message_between_two_questions_is_not_skipped(java: Driver, server: Server, new_topic: NewTopic) -> None:
    """A queue gets its first message after a consumer was answered about its offset, and before it goes on."""
    topic = new_topic(1)
    about = {"group": f"{topic}-group", "subscriptions": {topic: "*"}, "settings": FROM_LAST}
    with Tap(server) as tap, Producer(java, namesrv=server.namesrv) as producer:
        with tap.hold(RequestCode.QUERY_CONSUMER_OFFSET):
            joining = JoiningConsumer(java, namesrv=tap.namesrv, **about)
            tap.wait(lambda passed: _is_answered(passed, topic))
            producer.send_all(topic, Outgoing(b"first"))
        with joining as consumer:
            assert [message.body for message in consumer.received(1)] == [b"first"]


def _is_answered(passed: Passed, topic: str) -> bool:
    is_query = passed.request.code == RequestCode.QUERY_CONSUMER_OFFSET and passed.answered is not None
    return is_query and passed.request.ext["topic"] == topic


@pytest.mark.feature("C7")
@pytest.mark.timeout(60 + 30 * ROUNDS)
def test_join_beside_first_messages_skips_none(
    either: Server, java: Driver, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each round a new group joins a topic whose queues get their first message at the same time."""
    skipped = 0
    with Admin(java, namesrv=either.namesrv) as admin, Producer(java, namesrv=either.namesrv) as producer:
        for number in range(ROUNDS):
            topic = f"joins-{number}"
            admin.create_topic(either.broker, topic, QUEUES)
            skipped += len(join_beside(java, either, producer, topic))
    with capsys.disabled():
        sys.stdout.write(
            f"\n{type(either).__name__}: {skipped} of {ROUNDS * QUEUES} first messages skipped in {ROUNDS} joins\n"
        )
    assert not skipped or not isinstance(either, RocketletServer)


def join_beside(java: Driver, server: Server, producer: Producer, topic: str) -> set[bytes]:
    """Start a consumer and send a first message to each queue, at the same time; return what it did not get."""
    about = {"group": f"{topic}-group", "subscriptions": {topic: "*"}, "settings": FROM_LAST}
    joining = JoiningConsumer(java, namesrv=server.namesrv, **about)
    for queue_id in range(QUEUES):
        queue = {"topic": topic, "brokerName": BROKER_NAME, "queueId": queue_id}
        (sent,) = producer.send_all(topic, Outgoing(b"%d" % queue_id), queue=queue)
        assert sent.queue_offset == 0
    wanted = {b"%d" % queue_id for queue_id in range(QUEUES)}
    with joining as consumer:
        return wanted - consumer.wait_bodies(wanted, SILENCE_MS)
