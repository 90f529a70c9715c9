"""Names in a namespace: wrapped on the wire, bare for the application."""

import pathlib

import pytest
from inbox import Inbox
from order_book import OrderBook, check_of
from scripted_cluster import ScriptedCluster
from subscribed import push_consumer

from rocketlet.client import (
    AllocateMessageQueueConsistentHash,
    ClientSettings,
    Credentials,
    Message,
    MessageQueue,
    Producer,
    ProducerSettings,
    PullConsumer,
    PullConsumerSettings,
    TransactionProducer,
    TransactionProducerSettings,
)
from rocketlet.client.group.offsets import offset_file_of
from rocketlet.client.session.interceptors import Namespace, NamespacedStrategy, sign_request
from rocketlet.common.errors import ConfigError
from rocketlet.common.signing import signature_of
from rocketlet.remoting.bodies.body import decode_body, encode_body
from rocketlet.remoting.bodies.client import (
    CheckClientBody,
    CheckedSubscription,
    HeartbeatData,
    LockBatchBody,
    LockedQueues,
)
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode

NS = Namespace("ns")
QUEUE = MessageQueue("T", "broker-a", 0)


@pytest.mark.feature("K18")
@pytest.mark.parametrize(
    ("bare", "wrapped"),
    [
        ("T", "ns%T"),
        ("%RETRY%g", "%RETRY%ns%g"),
        ("%DLQ%g", "%DLQ%ns%g"),
        ("ns%T", "ns%T"),
        ("other%T", "ns%other%T"),
        ("TBW102", "TBW102"),
        ("RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRACE_TOPIC"),
        ("rmq_sys_anything", "rmq_sys_anything"),
        ("CID_RMQ_SYS_x", "CID_RMQ_SYS_x"),
        ("DefaultCluster_REPLY_TOPIC", "DefaultCluster_REPLY_TOPIC"),
        ("", ""),
    ],
)
def test_name_is_wrapped_as_in_java(bare: str, wrapped: str) -> None:
    """System names and names that have the namespace stay; the prefix of a derived topic stays in front."""
    assert NS.wrap(bare) == wrapped


@pytest.mark.feature("K18")
@pytest.mark.parametrize(
    ("wrapped", "bare"),
    [("ns%T", "T"), ("%RETRY%ns%g", "%RETRY%g"), ("%DLQ%ns%g", "%DLQ%g"), ("other%T", "other%T"), ("T", "T")],
)
def test_name_is_stripped_of_its_own_namespace_only(wrapped: str, bare: str) -> None:
    """A name of another namespace is shown as it is."""
    assert NS.strip(wrapped) == bare


@pytest.mark.parametrize("name", ["a%b", "a b", "ä"])
def test_namespace_that_cannot_be_told_from_the_name_is_refused(name: str) -> None:
    """The sign between namespace and name is not part of a namespace, nor is what no name may hold."""
    with pytest.raises(ConfigError, match="cannot be a namespace"):
        ClientSettings(namespace=name)


def test_names_in_bodies_are_wrapped() -> None:
    """Locks and questions about subscriptions name groups and topics in their bodies; the answer to a lock is bare."""
    lock = Command.request(
        RequestCode.LOCK_BATCH_MQ, body=encode_body(LockBatchBody(client_id="c", consumer_group="g", mq_set=[QUEUE]))
    )
    NS.wrap_request(lock)
    NS.wrap_request(lock)
    sent = decode_body(LockBatchBody, lock.body)
    assert (sent.consumer_group, sent.mq_set) == ("ns%g", [MessageQueue("ns%T", "broker-a", 0)])

    answer = Command.response(0, body=encode_body(LockedQueues(queues=sent.mq_set)))
    NS.strip_answer(lock, answer)
    assert decode_body(LockedQueues, answer.body).queues == [QUEUE]

    question = CheckClientBody(client_id="c", group="g", subscription_data=CheckedSubscription(topic="T"))
    check = Command.request(RequestCode.CHECK_CLIENT_CONFIG, body=encode_body(question))
    NS.wrap_request(check)
    checked = decode_body(CheckClientBody, check.body)
    assert checked.subscription_data is not None
    assert (checked.group, checked.subscription_data.topic) == ("ns%g", "ns%T")
    check = Command.request(RequestCode.CHECK_CLIENT_CONFIG, body=encode_body(CheckClientBody(group="g")))
    NS.wrap_request(check)
    assert decode_body(CheckClientBody, check.body) == CheckClientBody(group="ns%g")


def test_strategy_sees_the_names_that_other_members_see() -> None:
    """Consistent hashing hashes the topic's name: a member that hashed the bare name would take other queues."""
    queues = [MessageQueue("T", "broker-a", number) for number in range(16)]
    wrapped = [MessageQueue("ns%T", "broker-a", number) for number in range(16)]
    plain = AllocateMessageQueueConsistentHash()
    share = NamespacedStrategy(plain, NS).allocate("g", "c1", queues, ["c1", "c2"])
    assert [NS.wrap_queue(queue) for queue in share] == plain.allocate("ns%g", "c1", wrapped, ["c1", "c2"])
    assert share != plain.allocate("g", "c1", queues, ["c1", "c2"])


@pytest.mark.feature("K18")
async def test_brokers_see_wrapped_names_and_the_application_bare_ones(cluster: ScriptedCluster) -> None:
    """Route, heartbeat, send and farewell of a producer are in the namespace, its result and queues are not."""
    cluster.routes["ns%T"] = {"broker-a": 1}
    broker = await cluster.add_broker("broker-a")
    settings = ProducerSettings(namespace="ns")
    async with Producer("pg", cluster.nameserver.address, settings=settings) as producer:
        queues = await producer.fetch_queues("T")
        result = await producer.send(Message("T", b"x", properties={"PGROUP": "pg"}))
    assert list(queues) == [QUEUE]
    assert result.queue == QUEUE
    [send] = broker.asked(RequestCode.SEND_MESSAGE_V2)
    assert (send.ext["a"], send.ext["b"], send.ext["c"]) == ("ns%pg", "ns%T", "TBW102")
    assert "PGROUP\x01ns%pg\x02" in send.ext["i"]
    [beat] = broker.asked(RequestCode.HEART_BEAT)
    assert [each.group_name for each in decode_body(HeartbeatData, beat.body).producer_data_set] == ["ns%pg"]
    [farewell] = broker.asked(RequestCode.UNREGISTER_CLIENT)
    assert farewell.ext["producerGroup"] == "ns%pg"


@pytest.mark.feature("K18")
async def test_messages_stay_within_their_namespace(address: str) -> None:
    """Producer and consumers of a namespace meet; a consumer of the bare topic sees the wrapped name."""
    inbox = Inbox()
    async with Producer("pg", address, settings=ProducerSettings(namespace="ns")) as producer:
        first = await producer.send(Message("T", b"first", tags="a"))
        async with push_consumer(address, inbox, expression="a", namespace="ns") as consumer:
            await producer.send(Message("T", b"second", tags="a"))
            message = await inbox.wait_body(b"second")
            assert {queue.topic for queue in consumer.queues} == {"T"}
        assert (message.topic, message.queue.topic) == ("T", "T")

    settings = PullConsumerSettings(namespace="ns")
    async with PullConsumer("pull", address, settings=settings) as puller:
        queues = await puller.fetch_queues("T")
        await puller.assign(queues)
        for queue in queues:
            await puller.seek(queue, 0)
        pulled = {message.body: message async for message in _first(puller, 2)}
        assert {message.topic for message in pulled.values()} == {"T"}
        assert pulled[b"first"].queue == first.queue

    async with PullConsumer("bare", address) as outside:
        assert {queue.topic for queue in await outside.fetch_queues("ns%T")} == {"ns%T"}


async def _first(puller: PullConsumer, count: int):
    async for message in puller:
        yield message
        count -= 1
        if count == 0:
            return


def test_offset_file_of_a_broadcast_has_names_of_the_namespace(tmp_path: pathlib.Path) -> None:
    """A Java consumer of the namespace on the same host finds the file, and in it the queues."""
    file = offset_file_of(str(tmp_path), ("10.0.0.1", "DEFAULT"), "g", NS)
    file.write({QUEUE: 7})
    assert file.path == tmp_path / "10.0.0.1@DEFAULT" / "ns%g" / "offsets.json"
    assert '"topic":"ns%T"' in file.path.read_text()
    assert file.read() == {QUEUE: 7}
    file.write({QUEUE: 8})
    assert file.read() == {QUEUE: 8}


@pytest.mark.feature("K18")
async def test_question_about_a_transaction_is_answered_within_the_namespace(cluster: ScriptedCluster) -> None:
    """The broker asks for the wrapped group; the listener sees its bare name."""
    cluster.routes["TBW102"] = {"broker-a": 1}
    broker = await cluster.add_broker("broker-a")
    book = OrderBook()
    settings = TransactionProducerSettings(namespace="ns")
    async with TransactionProducer("pg", cluster.nameserver.address, listener=book, settings=settings):
        broker.connections[0].send_oneway(check_of(b"1", "commit", group="ns%pg"))
        [answer] = await broker.wait_asked(RequestCode.END_TRANSACTION)
    assert answer.ext["producerGroup"] == "ns%pg"
    assert [message.properties["PGROUP"] for message in book.checked] == ["pg"]


@pytest.mark.feature("K18")
async def test_queues_are_locked_within_the_namespace(address: str) -> None:
    """An orderly consumer gets messages only of queues that a broker has locked for it."""
    inbox = Inbox()
    async with Producer("pg", address, settings=ProducerSettings(namespace="ns")) as producer:
        queue = (await producer.send(Message("T", b"0"))).queue
        for number in range(1, 5):
            await producer.send(Message("T", str(number).encode()), queue=queue)
    async with push_consumer(address, inbox, namespace="ns", is_orderly=True):
        got = await inbox.wait_for(5)
    assert [message.body for message in got] == [b"0", b"1", b"2", b"3", b"4"]
    assert {message.topic for message in got} == {"T"}


KEYS = Credentials("AK", "12345678")


@pytest.mark.feature("K18")
def test_signature_is_that_of_java() -> None:
    """The vector of Java's ``AclSignerTest``."""
    assert signature_of(b"RocketMQ", "12345678") == "IUc8rrO/0gDch8CjObLQsW2rsiA="


def test_signed_text_is_all_values_in_the_order_of_their_names_and_the_body() -> None:
    """Upper case comes before lower case, as in Java's ``TreeMap``; an older signature is not part of the text."""
    request = Command.request(10, {"b": "2", "a": "1", "Signature": "old", "Zeta": "z"}, b"body")
    sign_request(request, Credentials("AK", "12345678", "token"))
    assert request.ext["Signature"] == signature_of(b"AKtokenz12body", "12345678")


def test_signing_twice_gives_the_same() -> None:
    """A command that goes to several brokers is signed for each of them."""
    request = Command.request(34, body=b"x")
    sign_request(request, KEYS)
    first = dict(request.ext)
    sign_request(request, KEYS)
    assert request.ext == first


async def test_every_request_is_signed(cluster: ScriptedCluster) -> None:
    """Routes, heartbeats, sends and the farewell; the name server is asked with a signature as well."""
    cluster.routes["T"] = {"broker-a": 1}
    broker = await cluster.add_broker("broker-a")
    settings = ProducerSettings(credentials=KEYS)
    async with Producer("pg", cluster.nameserver.address, settings=settings) as producer:
        await producer.send(Message("T", b"x"))
        await producer.send_oneway(Message("T", b"y"))
    requests = [*broker.requests, *cluster.nameserver.requests]
    assert len({request.code for request in requests}) == 4
    for request in requests:
        fields = {name: value for name, value in request.ext.items() if name != "Signature"}
        text = "".join(fields[name] for name in sorted(fields)).encode() + request.body
        assert fields["AccessKey"] == "AK"
        assert request.ext["Signature"] == signature_of(text, "12345678")


def test_secrets_are_not_shown() -> None:
    """A log line with settings gives nothing away."""
    shown = repr(ProducerSettings(credentials=Credentials("AK", "very secret", "token")))
    assert "AK" in shown
    assert "very secret" not in shown
    assert "token=" not in shown


def test_empty_key_is_refused() -> None:
    """Nobody signs with nothing."""
    with pytest.raises(ConfigError, match="secret_key"):
        Credentials("AK", "")
