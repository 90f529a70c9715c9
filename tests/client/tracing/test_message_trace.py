"""The message trace: what is recorded, and how it is sent."""

import asyncio
import logging
from dataclasses import replace
from functools import partial

import pytest
from scripted_cluster import ScriptedCluster, refused, stored

from rocketlet.client import (
    ConsumeEnd,
    ConsumeResult,
    EndTransactionRecord,
    HookOwner,
    Message,
    MessageQueue,
    MessageTrace,
    Producer,
    ProducerSettings,
    PubRecord,
    PullConsumer,
    PushConsumer,
    PushConsumerSettings,
    RecallRecord,
    ReceivedMessage,
    Retry,
    Role,
    SendContext,
    SendResult,
    SendStatus,
    SentMessage,
    Session,
    SubAfterRecord,
    SubBeforeRecord,
    TracedKind,
    TraceRecord,
    parse_records,
)
from rocketlet.client.tracing.message_trace import encode_record, keys_of
from rocketlet.common.codes import ResponseCode
from rocketlet.common.errors import ConfigError
from rocketlet.common.names import TRACE_TOPIC
from rocketlet.common.properties import parse_properties
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.testing import ManualClock

SEND = RequestCode.SEND_MESSAGE_V2


def traces_in(requests: list[Command]) -> list[Command]:
    """Return the sends to the trace topic."""
    return [request for request in requests if request.ext["b"] == TRACE_TOPIC]


def records_in(requests: list[Command]) -> list[TraceRecord]:
    """Return the records that were sent to the trace topic."""
    return [record for request in traces_in(requests) for record in parse_records(request.body.decode())]


async def make_broker(cluster: ScriptedCluster):
    """Add the one broker, with a topic and the trace's."""
    cluster.routes["T"] = cluster.routes[TRACE_TOPIC] = {"broker-a": 1}
    return await cluster.add_broker("broker-a")


@pytest.mark.feature("K19")
async def test_sends_are_recorded_and_the_rest_goes_out_at_the_end(cluster: ScriptedCluster) -> None:
    """One record for each send, a batch as one; those of the trace itself are not recorded."""
    broker = await make_broker(cluster)
    broker.answers[RequestCode.SEND_BATCH_MESSAGE] = stored
    settings = ProducerSettings(hooks=(MessageTrace(),))
    async with Producer("pg", cluster.nameserver.address, settings=settings) as producer:
        sent = await producer.send(Message("T", b"123", tags="a", keys=["k1", "k2"]))
        await producer.send(Message("T", b"x", delay_level=3))
        batch = await producer.send_batch([Message("T", b"1"), Message("T", b"2", keys=["k3"])])
        assert not traces_in(broker.asked(SEND))
    [request] = traces_in(broker.asked(SEND))
    plain, late, both = records_in([request])
    assert isinstance(plain, PubRecord)
    assert plain.message_id == sent.message_id
    assert (plain.group, plain.topic, plain.tags, plain.keys) == ("pg", "T", "a", "k1 k2")
    assert (plain.store_host, plain.body_bytes, plain.kind) == (broker.address, 3, TracedKind.NORMAL)
    assert (plain.offset_message_id, plain.has_succeeded) == (sent.offset_message_id, True)
    assert isinstance(late, PubRecord)
    assert late.kind is TracedKind.DELAY
    assert isinstance(both, PubRecord)
    assert both.message_id == batch.message_id
    keys = parse_properties(request.ext["i"])["KEYS"].split()
    assert {sent.message_id, "k1", "k2", "k3", *batch.message_id.split(",")} <= set(keys)
    assert request.ext["a"].startswith("_INNER_TRACE_PRODUCER-pg-PRODUCE-")


async def test_ten_records_go_out_together_and_fewer_after_5_s(cluster: ScriptedCluster) -> None:
    """Twelve sends make a message of ten records at once, and one of two after the time."""
    clock = ManualClock()
    broker = await make_broker(cluster)
    settings = ProducerSettings(hooks=(MessageTrace(),))
    async with Producer("pg", cluster.nameserver.address, settings=settings, clock=clock) as producer:
        for _ in range(10):
            await producer.send(Message("T", b"x"))
        await broker.wait_asked(SEND, 11)
        assert len(records_in(broker.asked(SEND))) == 10
        for _ in range(2):
            await producer.send(Message("T", b"x"))
        await clock.settle()
        assert len(traces_in(broker.asked(SEND))) == 1
        await clock.elapse(5_000)
        await broker.wait_asked(SEND, 14)
        assert len(records_in(broker.asked(SEND))) == 12


async def test_trace_that_cannot_be_sent_holds_nothing_up(
    cluster: ScriptedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The send that it tells of has succeeded; the loss is logged."""
    broker = await make_broker(cluster)

    def answer(command: Command) -> Command:
        is_trace = command.ext["b"] == TRACE_TOPIC
        return refused(ResponseCode.MESSAGE_ILLEGAL)(command) if is_trace else stored(command)  # pyright: ignore[reportReturnType] # both give commands

    broker.answers[SEND] = answer
    settings = ProducerSettings(hooks=(MessageTrace(),))
    async with Producer("pg", cluster.nameserver.address, settings=settings) as producer:
        await producer.send(Message("T", b"x"))
    assert "sending trace records failed" in caplog.text


async def test_too_many_records_are_dropped(cluster: ScriptedCluster, caplog: pytest.LogCaptureFixture) -> None:
    """2048 wait; who sends them was never given time here."""
    broker = await make_broker(cluster)
    owner_of = partial(HookOwner, group="pg", role=Role.PRODUCER)
    queue = MessageQueue("T", "broker-a", 0)
    result = SendResult(SendStatus.SEND_OK, "ID", "OFF", queue, 0)
    async with (
        Session(cluster.nameserver.address) as session,
        MessageTrace(flush_ms=60_000).attach(owner_of(session)) as hook,
    ):
        for _ in range(3_000):
            sent = SentMessage("T", b"x", {})
            context = SendContext(
                group="pg", messages=[sent], message_id="ID", queue=queue, address="b:1", started_at_ms=0
            )
            context.result = result
            hook.after_send(context)
    assert len(records_in(broker.asked(SEND))) == 2048
    assert "trace queue is full, dropping records above 2048" in caplog.text


@pytest.mark.feature("K19")
async def test_trace_tells_of_both_ends(address: str) -> None:
    """A listener that fails and then succeeds: what was sent, and each of its calls, found in the trace topic."""
    done = asyncio.Event()

    async def on_messages(messages: list[ReceivedMessage]) -> ConsumeResult | Retry:
        if messages[0].reconsume_times == 0:
            return Retry(delay_level=1)
        done.set()
        return ConsumeResult.SUCCESS

    trace = MessageTrace(topic="my-trace", flush_ms=100)
    async with Producer("pg", address, settings=ProducerSettings(hooks=(trace,))) as producer:
        await producer.send(Message("T", b"first of its topic"))
        consumer = PushConsumer("traced", address, settings=PushConsumerSettings(hooks=(trace,)))
        consumer.subscribe("T", "wanted", on_messages)
        async with consumer:
            sent = await producer.send(Message("T", b"x", tags="wanted", keys=["order-1"]))
            await done.wait()

    about: list[TraceRecord] = []
    async with PullConsumer("reader", address) as reader:
        queues = await reader.fetch_queues("my-trace")
        await reader.assign(queues)
        for queue in queues:
            await reader.seek(queue, 0)
        for _ in range(20):  # a record whose sending failed never comes
            for message in await reader.poll():
                records = list(parse_records(message.body.decode()))
                about += [record for record in records if record.message_id == sent.message_id]
            if len(about) == 5:
                break
    [pub] = [record for record in about if isinstance(record, PubRecord)]
    before = sorted((record for record in about if isinstance(record, SubBeforeRecord)), key=lambda each: each.retries)
    after = {record.request_id: record for record in about if isinstance(record, SubAfterRecord)}
    assert pub.keys == "order-1"
    assert [record.retries for record in before] == [0, 1]
    assert [record.region for record in (pub, *before)] == ["DefaultRegion"] * 3
    assert [after[record.request_id].end for record in before] == [ConsumeEnd.FAILED, ConsumeEnd.SUCCESS]
    assert [after[record.request_id].has_succeeded for record in before] == [False, True]


@pytest.mark.parametrize(("name", "value"), [("batch_records", 0), ("batch_records", 21), ("flush_ms", 0)])
def test_settings_of_a_trace_are_checked(name: str, value: int) -> None:
    """Java takes twenty records at most."""
    with pytest.raises(ConfigError, match=name):
        replace(MessageTrace(), **{name: value})


PUB = PubRecord(
    time_ms=1,
    region="R",
    group="g",
    topic="T",
    message_id="ID",
    tags=None,
    keys="k1 k2",
    store_host="1.2.3.4:5",
    body_bytes=3,
    took_ms=4,
    kind=TracedKind.DELAY,
    offset_message_id="OFF",
    has_succeeded=True,
)
BEFORE = SubBeforeRecord(time_ms=1, region="R", group="g", request_id="REQ", message_id="ID", retries=2, keys=None)
AFTER = SubAfterRecord(
    request_id="REQ", message_id="ID", took_ms=3, has_succeeded=False, keys="k", end=4, time_ms=9, group="g"
)
END = EndTransactionRecord(
    time_ms=1,
    region="R",
    group="g",
    topic="T",
    message_id="ID",
    tags="a",
    keys=None,
    store_host="h:1",
    kind=TracedKind.TRANSACTION_END,
    transaction_id="TX",
    state="COMMIT_MESSAGE",
    is_from_check=True,
)
RECALL = RecallRecord(time_ms=1, region="R", group="g", topic="T", message_id="ID", has_succeeded=True)
TEXTS: list[tuple[TraceRecord, str]] = [
    (PUB, "Pub|1|R|g|T|ID|null|k1 k2|1.2.3.4:5|3|4|3|OFF|true"),
    (BEFORE, "SubBefore|1|R|g|REQ|ID|2|null"),
    (AFTER, "SubAfter|REQ|ID|3|false|k|4|9|g"),
    (END, "EndTransaction|1|R|g|T|ID|a|null|h:1|2|TX|COMMIT_MESSAGE|true"),
    (RECALL, "Recall|1|R|g|T|ID|true"),
]


@pytest.mark.feature("K19")
@pytest.mark.parametrize(("record", "text"), TEXTS, ids=[type(record).__name__ for record, _ in TEXTS])
def test_record_has_the_fields_of_java_in_their_order(record: TraceRecord, text: str) -> None:
    """Written and read; nothing is lost on the way."""
    wire = text.replace("|", "\x01") + "\x02"
    assert encode_record(record) == wire
    assert list(parse_records(wire)) == [record]


def test_records_follow_one_another() -> None:
    """A message holds several."""
    records = [PUB, BEFORE, AFTER]
    assert list(parse_records("".join(map(encode_record, records)))) == records


def test_older_records_are_read() -> None:
    """Those of 4.x have no offset id, and end before the time."""
    text = "Pub|1|R|g|T|ID|a|k|h:1|3|4|0|true~SubAfter|REQ|ID|3|true|k~".replace("|", "\x01").replace("~", "\x02")
    pub, after = parse_records(text)
    assert isinstance(pub, PubRecord)
    assert (pub.offset_message_id, pub.has_succeeded) == (None, True)
    assert after == SubAfterRecord(request_id="REQ", message_id="ID", took_ms=3, has_succeeded=True, keys="k")


def test_record_that_cannot_be_read_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """The others of its message are not lost with it; an unknown name is not even logged."""
    with caplog.at_level(logging.WARNING):
        found = list(parse_records("Pub\x01now\x02Future\x011\x02" + encode_record(RECALL)))
    assert found == [RECALL]
    assert caplog.text.count("cannot be read") == 1


def test_keys_are_the_ids_and_the_keys_of_the_message() -> None:
    """A batch is found by the id of each of its messages."""
    assert keys_of(PUB) == ["ID", "k1", "k2"]
    assert keys_of(RECALL) == ["ID"]
    batch = PubRecord(1, "R", "g", "T", "A,B", None, None, None, 3, 4, TracedKind.NORMAL)
    assert keys_of(batch) == ["A", "B"]
