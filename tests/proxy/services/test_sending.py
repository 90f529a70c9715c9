"""Messages that are sent by gRPC: where they go, what is stored of them, and transactions."""

import gzip
from typing import Any

import pytest
from grpc_calls import HERE, METADATA, LocalPort, commands, make_call
from raw_calls import Caller, until

from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.broker.topic.topics import MESSAGE_TYPE, make_topic
from rocketlet.common.record import Record, decode_record
from rocketlet.proxy.messages import v2
from rocketlet.proxy.messages.enums import (
    ClientType,
    Code,
    Encoding,
    MessageType,
    TransactionResolution,
    TransactionSource,
)
from rocketlet.proxy.messages.names import endpoints_of
from rocketlet.proxy.services.sending import group_queue
from rocketlet.testing.manual_clock import ManualClock

THERE = endpoints_of("broker.example", 9999)


@pytest.fixture
def port(broker: Broker) -> LocalPort:
    """Return the services of a broker that has a topic for each kind of message."""
    port = LocalPort(broker)
    add_topic(port, "T", "MIXED")
    return port


def add_topic(port: LocalPort, name: str, kind: str | None) -> None:
    """Create a topic that everybody knows."""
    topic = make_topic(name, 4)
    topic.attributes = {} if kind is None else {MESSAGE_TYPE: kind}
    port.operations.topics.put(topic)
    port.operations.topics.unsaved.discard(name)


def message(number: int, kind: MessageType = MessageType.NORMAL, topic: str = "T", **fields: Any) -> v2.Message:
    """Return a message."""
    properties = v2.SystemProperties(
        message_id=f"{number:034X}", message_type=kind, body_encoding=Encoding.IDENTITY, **fields
    )
    return v2.Message(topic=v2.Resource(name=topic), system_properties=properties, body=b"body %d" % number)


def stored(port: LocalPort, topic: str = "T") -> list[Record]:
    """Return what a topic has, queue by queue."""
    store = port.operations.store
    store.advance()
    found: list[Record] = []
    for queue_id in range(8):
        for log_offset, size, _ in store.entries(topic, queue_id, 0, 100):
            data = store.record_at(log_offset, size)
            assert data is not None
            found.append(decode_record(data))
    return found


async def query_route(port: LocalPort, topic: str, endpoints: v2.Endpoints) -> v2.QueryRouteResponse:
    """Ask for a route, which may be told when a topic was made known."""
    request = v2.QueryRouteRequest(topic=v2.Resource(name=topic), endpoints=endpoints)
    call = port.start("QueryRoute", request.SerializeToString(), make_call())
    await until(lambda: call.status is not None)
    return call.one_answer(v2.QueryRouteResponse)


@pytest.mark.feature("G16")
async def test_route_creates_a_topic_for_every_kind(port: LocalPort) -> None:
    """Asking for the route of a topic creates it, where sends may create topics, and it takes every kind of message."""
    answer = await query_route(port, "New", THERE)
    assert answer.status.code == Code.OK
    assert {queue.permission for queue in answer.message_queues} == {4}
    assert list(answer.message_queues[0].accept_message_types) == [1, 2, 3, 4]
    assert answer.message_queues[0].broker.endpoints == THERE
    assert port.send(message(1, topic="New")).status.code == Code.OK


async def test_route_of_several_endpoints_names_the_broker(port: LocalPort) -> None:
    """A client that names several addresses, or none, is told where this broker is."""
    both = v2.Endpoints(scheme=THERE.scheme, addresses=[*THERE.addresses, *THERE.addresses])
    for endpoints in (both, v2.Endpoints()):
        answer = await query_route(port, "T", endpoints)
        assert answer.message_queues[0].broker.endpoints == endpoints_of(*HERE)


@pytest.mark.feature("G3")
def test_each_message_has_its_entry(port: LocalPort) -> None:
    """Messages of one request are stored one by one, and each is answered by its own id."""
    answer = port.send(message(1), message(2, message_group="g"), message(3))
    assert answer.status.code == Code.OK
    assert [entry.message_id for entry in answer.entries] == [f"{number:034X}" for number in (1, 2, 3)]
    assert sorted(bytes(record.body) for record in stored(port)) == [b"body 1", b"body 2", b"body 3"]


@pytest.mark.feature("G3")
async def test_remoting_reads_what_was_sent(port: LocalPort, caller: Caller) -> None:
    """Tag, keys, id and properties are those that clients of remoting know."""
    sent = message(1, tag="paid", keys=["k1", "k2"], trace_context="00-abc-01")
    sent.user_properties["größe"] = "5 公斤"
    assert port.send(sent).status.code == Code.OK
    (record,) = stored(port)
    assert (
        record.properties.items()
        >= {
            "TAGS": "paid",
            "KEYS": "k1 k2",
            "UNIQ_KEY": f"{1:034X}",
            "größe": "5 公斤",
            "TRACE_CONTEXT": "00-abc-01",
            "PGROUP": "T",
            "__BORNHOST": "127.0.0.1:50000",
        }.items()
    )
    assert caller


def test_packed_body_is_stored_as_it_was(port: LocalPort) -> None:
    """A body that comes packed by gzip is unpacked; one that is too long then, or damaged, is refused."""
    sent = message(1)
    sent.system_properties.body_encoding, sent.body = Encoding.GZIP, gzip.compress(b"x" * 1000)
    assert port.send(sent).status.code == Code.OK
    assert [bytes(record.body) for record in stored(port)] == [b"x" * 1000]
    sent.body = gzip.compress(b"x" * ((4 << 20) + 1))
    assert port.send(sent).status.code == Code.MESSAGE_BODY_TOO_LARGE
    sent.body = b"no gzip"
    assert port.send(sent).status.code == Code.MESSAGE_CORRUPTED


@pytest.mark.feature("G12", "G20")
def test_sizes_are_limited(port: LocalPort) -> None:
    """A body of 4 MiB and properties of 16 KiB pass, a byte more does not; what a refused request has is not stored."""
    sent = message(1, tag="ab", keys=["c"])
    sent.body = b"x" * (4 << 20)
    sent.user_properties["ü"] = "y" * ((16 << 10) - 5)
    assert port.send(sent).status.code == Code.OK
    sent.user_properties["ü"] += "y"
    assert port.send(sent).status.code == Code.MESSAGE_PROPERTIES_TOO_LARGE
    del sent.user_properties["ü"]
    sent.body += b"x"
    assert port.send(message(2), sent).status.code == Code.MESSAGE_BODY_TOO_LARGE
    assert len(stored(port)) == 1


@pytest.mark.feature("G9")
def test_group_keeps_its_queue(port: LocalPort) -> None:
    """All messages of a group lie in one queue, in their order; it is that which upstream's proxy chooses."""
    for number in range(6):
        port.send(message(number, MessageType.FIFO, message_group="grp1" if number % 2 else "g"))
    by_group = {(record.properties["__SHARDINGKEY"], record.queue_id) for record in stored(port)}
    assert by_group == {("grp1", 0), ("g", 1)}
    assert len({group_queue(f"g{number}", 16) for number in range(200)}) == 16


@pytest.mark.feature("G17")
def test_priority_chooses_the_queue(port: LocalPort) -> None:
    """A message lies in the queue of its priority, the highest beyond; beside a group it counts for nothing."""
    add_topic(port, "P", "PRIORITY")
    for number, priority in enumerate((0, 2, 9)):
        assert port.send(message(number, MessageType.PRIORITY, "P", priority=priority)).status.code == Code.OK
    assert [(record.queue_id, record.properties["_SYS_MSG_PRIORITY_"]) for record in stored(port, "P")] == [
        (0, "0"),
        (2, "2"),
        (3, "9"),
    ]
    port.send(message(4, message_group="g", priority=3))
    assert "_SYS_MSG_PRIORITY_" not in stored(port)[0].properties


def half(port: LocalPort, number: int) -> str:
    """Send a half message; return the id of its transaction."""
    answer = port.send(message(number, MessageType.TRANSACTION))
    assert answer.status.code == Code.OK
    return answer.entries[0].transaction_id


def end(port: LocalPort, transaction_id: str, resolution: TransactionResolution, *, is_check: bool = False) -> Code:
    """End a transaction."""
    source = TransactionSource.SOURCE_SERVER_CHECK if is_check else TransactionSource.SOURCE_CLIENT
    request = v2.EndTransactionRequest(
        topic=v2.Resource(name="T"), transaction_id=transaction_id, resolution=resolution, source=source
    )
    return Code(port.call("EndTransaction", request, v2.EndTransactionResponse).status.code)


@pytest.mark.feature("G11")
def test_transactions_end(port: LocalPort) -> None:
    """What is committed can be read, what is rolled back not; the same end again is taken and does nothing."""
    first, second = half(port, 1), half(port, 2)
    assert stored(port) == []
    assert end(port, first, TransactionResolution.COMMIT) == Code.OK
    assert end(port, second, TransactionResolution.ROLLBACK) == Code.OK
    assert end(port, first, TransactionResolution.COMMIT) == Code.OK
    assert [bytes(record.body) for record in stored(port)] == [b"body 1"]
    assert end(port, "F" * 34, TransactionResolution.COMMIT) == Code.INTERNAL_SERVER_ERROR


@pytest.mark.feature("G11")
async def test_transactions_are_known_after_a_restart(settings: dict[str, str], clock: ManualClock) -> None:
    """A transaction of the run before is found, and ends."""
    config = BrokerConfig.from_java(settings)
    async with Broker(config, clock) as broker:
        port = LocalPort(broker)
        add_topic(port, "T", "MIXED")
        transaction_id = half(port, 1)
    async with Broker(config, clock) as broker:
        port = LocalPort(broker)
        assert end(port, transaction_id, TransactionResolution.COMMIT, is_check=True) == Code.OK
        assert [bytes(record.body) for record in stored(port)] == [b"body 1"]


@pytest.mark.feature("G11")
async def test_open_transaction_is_asked_about(port: LocalPort, clock: ManualClock) -> None:
    """A producer is asked what has become of a transaction, by its stream, with the message as it was sent."""
    call = make_call()
    publishing = v2.Publishing(topics=[v2.Resource(name="T")])
    settings = v2.Settings(client_type=ClientType.PRODUCER, publishing=publishing)
    port.telemetry(call).received(v2.TelemetryCommand(settings=settings).SerializeToString())
    transaction_id = half(port, 1)
    port.operations.scheduler.end_turn()
    for _ in range(8):
        await clock.elapse(10_000)
    asked = [each for each in commands(call) if each.WhichOneof("command") != "settings"]
    question = asked[0].recover_orphaned_transaction_command
    assert question.transaction_id == transaction_id
    assert (question.message.topic.name, question.message.body) == ("T", b"body 1")
    assert question.message.system_properties.message_type == MessageType.TRANSACTION
    assert question.message.system_properties.body_digest.checksum
    assert end(port, transaction_id, TransactionResolution.COMMIT, is_check=True) == Code.OK
    assert [bytes(record.body) for record in stored(port)] == [b"body 1"]


def test_producer_is_known_by_what_it_sends(port: LocalPort) -> None:
    """A producer that has not said its topics yet can be asked about those that it sends to."""
    half(port, 1)
    (client,) = port.operations.guests.producer_group("T")
    assert client is port.services.clients.find(METADATA["x-mq-client-id"])
