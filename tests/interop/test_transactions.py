"""Transactions of the official clients; open ones are checked once a second here."""

import pathlib
from collections.abc import Callable

import pytest
from interop.clients import Admin, Outgoing, Producer, PushConsumer, TransactionProducer
from interop.driver import Driver
from interop.servers import JavaServer, Server
from interop.versions import every_client, every_java

StartServer = Callable[..., Server]
CHECKS = {"transactionCheckInterval": "1000", "transactionTimeOut": "500"}
TEN = [b"%d" % number for number in range(10)]


@pytest.fixture(scope="module")
def checking(fresh_server: StartServer) -> Server:
    """Start a server that checks soon and often, and gives a transaction up after three checks."""
    return fresh_server(transactionCheckMax="3", **CHECKS)


def participant(driver: Driver, server: Server, topic: str) -> TransactionProducer:
    """Start a producer of transactions in the topic's group, which is known to the brokers of the topic."""
    return TransactionProducer(driver, namesrv=server.namesrv, group=f"{topic}-producers", topic=topic)


def consumer_of(driver: Driver, server: Server, topic: str) -> PushConsumer:
    """Start a consumer of all that the topic has ever held."""
    return PushConsumer(driver, namesrv=server.namesrv, group=f"{topic}-consumers", subscriptions={topic: "*"})


def make_topic(driver: Driver, server: Server, topic: str) -> None:
    """Let a first message create the topic."""
    with Producer(driver, namesrv=server.namesrv) as maker:
        maker.send_all(topic, Outgoing(b"first"))


@pytest.mark.feature("T1", "T2")
@every_client
def test_committed_messages_are_delivered(
    driver: Driver, java: Driver, checking: Server, new_name: Callable[[], str]
) -> None:
    """Of ten that are committed and ten that are rolled back the ten are delivered, each once and unchanged."""
    topic = new_name()
    make_topic(java, checking, topic)
    with participant(driver, checking, topic) as producer, consumer_of(driver, checking, topic) as consumer:
        producer.send(topic, *(b"not " + body for body in TEN), outcome="rollback", checked="rollback")
        sent = producer.send(topic, *TEN, outcome="commit", tags="tag", keys=["key"])
        got = [message for message in consumer.received(11) if message.body != b"first"]
        producer.send(topic, b"last", outcome="commit")
        assert len(consumer.received(12)) == 12
    assert sorted(message.body for message in got) == TEN
    assert {message.msg_id for message in got} == {one.msg_id for one in sent}
    for message in got:
        told = {name: message.properties.get(name) for name in ("TRAN_MSG", "PGROUP", "REAL_TOPIC", "outcome")}
        assert told == {"TRAN_MSG": "true", "PGROUP": f"{topic}-producers", "REAL_TOPIC": None, "outcome": "commit"}
        assert (message.sys_flag & 0xC, message.tags, message.keys) == (0x8, "tag", "key")


@pytest.mark.feature("T3", "T4")
@every_java
def test_checks_decide_what_is_unknown(java: Driver, checking: Server, new_name: Callable[[], str]) -> None:
    """The producer is asked about each message whose outcome it did not tell; five of ten are delivered."""
    topic = new_name()
    make_topic(java, checking, topic)
    with participant(java, checking, topic) as producer, consumer_of(java, checking, topic) as consumer:
        for outcome, bodies in (("unknown", TEN[:4]), ("null", TEN[4:7]), ("exception", TEN[7:])):
            for body in bodies:
                (sent,) = producer.send(topic, body, outcome=outcome, checked="commit" if int(body) % 2 else "rollback")
                assert sent.state == "UNKNOW"
        got = consumer.received(6)
        asked = producer.checked(10)
        producer.send(topic, b"last", outcome="commit")
        assert len(consumer.received(7)) == 7
    assert sorted(message.body for message in got) == [b"1", b"3", b"5", b"7", b"9", b"first"]
    assert {message.body for message in asked} == set(TEN)
    assert {message.topic for message in asked} == {topic}


@pytest.mark.feature("T5")
def test_another_producer_of_the_group_is_asked(
    java: Driver, another_java: Callable[[], Driver], checking: Server, new_name: Callable[[], str]
) -> None:
    """A producer is killed with open transactions: the other of its group is asked about them, and commits."""
    topic = new_name()
    make_topic(java, checking, topic)
    with participant(java, checking, topic) as second, consumer_of(java, checking, topic) as consumer:
        doomed = another_java()
        participant(doomed, checking, topic).send(topic, *TEN, outcome="unknown", checked="commit")
        doomed.kill()
        assert consumer.wait_bodies([*TEN, b"first"]) == {*TEN, b"first"}
        assert {message.body for message in second.checked()} <= set(TEN)


@pytest.mark.feature("T10")
@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_open_transactions_survive_a_restart(
    ending: str, rocketlet_up: StartServer, java: Driver, tmp_path: pathlib.Path, new_name: Callable[[], str]
) -> None:
    """Half messages of before are checked and committed after it; what was committed is there, once after a stop."""
    topic = new_name()
    server = rocketlet_up(tmp_path / "store", transactionCheckInterval="600000")
    make_topic(java, server, topic)
    with participant(java, server, topic) as producer, consumer_of(java, server, topic) as consumer:
        producer.send(topic, *TEN[:5], outcome="unknown", checked="commit")
        producer.send(topic, *TEN[5:], outcome="commit", checked="commit")
        assert consumer.wait_bodies([*TEN[5:], b"first"]) == {*TEN[5:], b"first"}
        getattr(server, ending)()
    server = rocketlet_up(tmp_path / "store", **CHECKS)
    with participant(java, server, topic) as producer:
        assert {message.body for message in producer.checked(5)} >= set(TEN[:5])
        everything = PushConsumer(java, namesrv=server.namesrv, group=f"{topic}-all", subscriptions={topic: "*"})
        with everything as consumer:
            assert consumer.wait_bodies([*TEN, b"first"]) == {*TEN, b"first"}
            producer.send(topic, b"last", outcome="commit")
            assert b"last" in consumer.wait_bodies([b"last"])
            repeats = isinstance(server, JavaServer)  # it forgets what was settled in its last three seconds
            assert len(consumer.received()) == 12 or repeats
        assert {message.body for message in producer.checked()} == set(TEN[:5])


@pytest.mark.feature("T11")
def test_given_up_transaction_is_checked_again(java: Driver, checking: Server, new_name: Callable[[], str]) -> None:
    """After three checks nobody is asked; resumed by the administration client, the producer is asked anew."""
    topic = new_name()
    make_topic(java, checking, topic)
    with participant(java, checking, topic) as producer, Admin(java, namesrv=checking.namesrv) as admin:
        producer.send(topic, b"open", outcome="unknown")
        first = producer.checked(4, timeout_ms=6_000)
        assert [message.properties["TRANSACTION_CHECK_TIMES"] for message in first] == ["1", "2", "3"]
        about = {"method": "resumeCheckHalfMessage", "args": [topic, first[-1].msg_id]}
        assert admin.driver.call_as(bool, "admin.call", name=admin.name, **about)
        again = producer.checked(4)
        assert again[3].properties["TRANSACTION_CHECK_TIMES"] == "1"


@pytest.mark.feature("L9")
@every_java
def test_delay_level_of_a_transaction_is_dropped(java: Driver, checking: Server, new_name: Callable[[], str]) -> None:
    """The client takes the level off: the message is delivered with its commit."""
    topic = new_name()
    make_topic(java, checking, topic)
    with participant(java, checking, topic) as producer, consumer_of(java, checking, topic) as consumer:
        producer.send(topic, b"now", outcome="commit", delay_level=18)
        (got,) = [message for message in consumer.received(2) if message.body == b"now"]
    assert "DELAY" not in got.properties
