"""The message trace: what is recorded, and how it is sent."""

import asyncio
import dataclasses
import logging
import re
import zlib
from functools import partial

import pytest
from msgspec.structs import replace
from received import received
from scripted_cluster import ScriptedCluster, refused, stored

from rocketlet.client import (
    ConsumeContext,
    ConsumeEnd,
    ConsumeResult,
    EndTransactionContext,
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
from rocketlet.client.session.lifecycle import TimerEvent
from rocketlet.client.tracing.message_trace import TraceSender, encode_record, keys_of
from rocketlet.common.codes import ResponseCode
from rocketlet.common.errors import ConfigError
from rocketlet.common.names import TRACE_TOPIC
from rocketlet.common.properties import parse_properties
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.transport.event_loop import TaskScope
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
        MessageTrace(**{name: value})  # pyright: ignore[reportArgumentType] # numbers both


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


def test_what_an_old_record_does_not_say_is_not_there() -> None:
    """A record that ends early was written for a success, by a client that knew less."""
    lines = [
        "Pub|1|R|g|T|ID|a|k|h:1|3|4|0",
        "SubBefore|1|R|g|REQ|ID|2",
        "SubAfter|REQ|ID|3|true",
        "EndTransaction|1|R|g|T|ID|a|k|h:1|2|TX|COMMIT_MESSAGE",
    ]
    pub, before, after, end = parse_records(
        "".join(f"{line}~" for line in lines).replace("|", "\x01").replace("~", "\x02")
    )
    assert isinstance(pub, PubRecord)
    assert (pub.offset_message_id, pub.has_succeeded) == (None, True)
    assert isinstance(before, SubBeforeRecord)
    assert before.keys is None
    assert isinstance(after, SubAfterRecord)
    assert (after.keys, after.end, after.time_ms, after.group) == (None, 0, 0, None)
    assert isinstance(end, EndTransactionRecord)
    assert end.is_from_check is False


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


QUEUE = MessageQueue("T", "broker-a", 0)


def send_context(messages: list[SentMessage], result: SendResult | None) -> SendContext:
    """Return a send to T that took 7 ms."""
    context = SendContext(
        group="pg", messages=messages, message_id="A", queue=QUEUE, address="h:1", started_at_ms=100, ended_at_ms=107
    )
    context.result = result
    return context


def consume_context(*messages: ReceivedMessage, end: ConsumeEnd | None, has_succeeded: bool) -> ConsumeContext:
    """Return a listener's call that took 9 ms."""
    context = ConsumeContext(group="cg", messages=messages, queue=QUEUE, started_at_ms=200, ended_at_ms=209, end=end)
    context.has_succeeded = has_succeeded
    return context


def transaction_context(
    message: Message | ReceivedMessage, state: str, *, is_from_check: bool
) -> EndTransactionContext:
    """Return the end of a transaction."""
    return EndTransactionContext(
        group="tg",
        message=message,
        message_id="A",
        transaction_id=None if is_from_check else "TX",
        address="h:1",
        state=state,
        is_from_check=is_from_check,
        ended_at_ms=300,
    )


OK = SendResult(SendStatus.SEND_OK, "A", "OFF", QUEUE, 0)
HALF = {"TRAN_MSG": "true", "TAGS": "a", "KEYS": "k1 k2"}
TRACED = """
Pub|100|DefaultRegion|pg|T|A|a|k1 k2|h:1|3|7|1|OFF|true
Pub|100|R|pg|T|A|null|null|h:1|1|7|3|OFF|false
Pub|100|DefaultRegion|pg|T|A|null|null|h:1|1|7|3|OFF|true
Pub|100|DefaultRegion|pg|T|A|null|null|h:1|1|7|3|OFF|true
Pub|100|DefaultRegion|pg|T|A|null|k1 k2 k3|h:1|5|7|0|OFF|true
SubBefore|200|R|cg|REQUEST|id-1|2|k1 k2
SubAfter|REQUEST|id-1|4|true|k1 k2|1|209|cg
SubBefore|200|DefaultRegion|cg|REQUEST|id-3|0|null
SubAfter|REQUEST|id-3|9|false|null|0|209|cg
EndTransaction|300|DefaultRegion|tg|T|A|a|k1 k2|h:1|2|TX|COMMIT_MESSAGE|false
EndTransaction|300|R|tg|T|A|null|null|h:1|2|null|UNKNOW|true
EndTransaction|300|DefaultRegion|tg|T|A|null|one|h:1|2|TX|ROLLBACK_MESSAGE|false
"""


@pytest.mark.feature("K19")
async def test_every_field_tells_what_happened(cluster: ScriptedCluster) -> None:
    """Of sends of each kind, listeners and transactions; what was not answered, or is not to be traced, is left out."""
    broker = await make_broker(cluster)
    late = [{"DELAY": "3"}, {"TIMER_DELAY_MS": "1"}, {"TIMER_DELIVER_MS": "1"}]
    here = dataclasses.replace(received(1), reconsume_times=2, properties={"KEYS": "k1 k2", "MSG_REGION": "R"})
    untraced = dataclasses.replace(received(2), properties={"TRACE_ON": "false"})
    consumed = [
        consume_context(here, untraced, end=ConsumeEnd.TIME_OUT, has_succeeded=True),
        consume_context(received(3), end=None, has_succeeded=False),
    ]
    async with (
        Session(cluster.nameserver.address) as session,
        MessageTrace(batch_records=20).attach(HookOwner(session, "g", Role.CONSUMER)) as hook,
    ):
        for messages, result in [
            ([SentMessage("T", b"123", HALF)], OK),
            ([SentMessage("T", b"1", HALF)], None),
            ([SentMessage("T", b"1", HALF)], replace(OK, is_traced=False)),
            ([SentMessage(TRACE_TOPIC, b"1", {})], OK),
            ([SentMessage("T", b"1", late[0])], replace(OK, region_id="R", status=SendStatus.FLUSH_DISK_TIMEOUT)),
            *(([SentMessage("T", b"1", each)], OK) for each in late[1:]),
            ([SentMessage("T", b"12", {"TAGS": "a", "KEYS": "k1 k2"}), SentMessage("T", b"345", {"KEYS": "k3"})], OK),
        ]:
            hook.before_send(send_context(messages, result))
            hook.after_send(send_context(messages, result))
        for context in consumed:
            hook.before_consume(context)
            hook.after_consume(context)
        for message, state, is_from_check in [
            (Message("T", b"x", tags="a", keys=["k1", "k2"]), "COMMIT_MESSAGE", False),
            (dataclasses.replace(received(4), properties={"MSG_REGION": "R"}), "UNKNOW", True),
            (Message("T", b"x", keys="one"), "ROLLBACK_MESSAGE", False),
        ]:
            hook.end_transaction(transaction_context(message, state, is_from_check=is_from_check))
    [request] = traces_in(broker.asked(SEND))
    text = request.body.decode().replace("\x01", "|").replace("\x02", "\n")
    requests = re.findall(r"[0-9A-F]{32}", text)
    assert re.sub(r"[0-9A-F]{32}", "REQUEST", text) == TRACED.lstrip()
    assert [requests.count(each) for each in requests] == [2, 2, 2, 2]
    assert requests[0] == requests[1]


async def test_record_that_would_make_the_message_too_great_goes_into_the_next(cluster: ScriptedCluster) -> None:
    """128 000 bytes go together; what is greater alone is sent alone."""
    broker = await make_broker(cluster)
    sizes = [64_000, 64_000, 127_801, 200, 130_000, 100, 100]
    rest = len(encode_record(replace(PUB, topic="T"))) - 1
    async with (
        Session(cluster.nameserver.address) as session,
        Producer("pg", session=session) as producer,
    ):
        sender = TraceSender(MessageTrace(), producer, TimerEvent(session.clock))
        for size in sizes:
            sender.add(replace(PUB, topic="T" * (size - rest)))
        assert repr(sender) == f"<TraceSender to {TRACE_TOPIC}, 7 waiting, 0 dropped>"
        await sender.flush()
        assert repr(sender) == f"<TraceSender to {TRACE_TOPIC}, 0 waiting, 0 dropped>"
    bodies = [each.body for each in traces_in(broker.asked(SEND))]
    texts = [zlib.decompress(body) if len(body) != 200 else body for body in bodies]
    assert [[len(part) + 1 for part in text.split(b"\x02")[:-1]] for text in texts] == [
        [64_000, 64_000],
        [127_801],
        [200],
        [130_000],
        [100, 100],
    ]


async def test_batch_is_sent_as_soon_as_it_is_whole(cluster: ScriptedCluster) -> None:
    """The last of its records ends the wait; one record fewer does not."""
    clock = ManualClock()
    broker = await make_broker(cluster)
    async with (
        Session(cluster.nameserver.address, clock) as session,
        Producer("pg", session=session) as producer,
    ):
        sender = TraceSender(MessageTrace(batch_records=3), producer, TimerEvent(clock))
        for _ in range(2):
            sender.add(PUB)
        async with TaskScope() as tasks:
            tasks.start(sender.step(), name="step")
            await clock.elapse(4_999)
            assert not traces_in(broker.asked(SEND))
            sender.add(PUB)
            await broker.wait_asked(SEND)
    assert len(records_in(broker.asked(SEND))) == 3


def test_defaults_of_a_trace_are_javas() -> None:
    """Ten records, five seconds, the topic that the official tools read."""
    assert MessageTrace() == MessageTrace(topic="RMQ_SYS_TRACE_TOPIC", batch_records=10, flush_ms=5_000)
    assert [MessageTrace(batch_records=each).batch_records for each in (1, 20)] == [1, 20]
    assert MessageTrace(flush_ms=1).flush_ms == 1


def test_kinds_travel_as_javas_ordinals() -> None:
    """Those of ``MessageType``: other readers of the trace topic know these numbers."""
    assert [kind.name for kind in sorted(TracedKind)] == [
        *("NORMAL", "TRANSACTION_HALF", "TRANSACTION_END", "DELAY", "ORDER", "PRIORITY")
    ]
    assert sorted(TracedKind) == [0, 1, 2, 3, 4, 5]
