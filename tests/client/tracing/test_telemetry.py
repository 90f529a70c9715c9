"""Spans and metrics by OpenTelemetry's conventions for messaging."""

import asyncio
import dataclasses
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from received import received
from scripted_cluster import QUEUE, ScriptedCluster, refused
from subscribed import push_consumer

from rocketlet.client import (
    ConsumeContext,
    ConsumeEnd,
    ConsumeResult,
    Message,
    MessageQueue,
    Producer,
    ProducerSettings,
    PullConsumer,
    PullConsumerSettings,
    ReceivedMessage,
    SendContext,
    SendResult,
    SendStatus,
    SentMessage,
)
from rocketlet.client.tracing.telemetry import Telemetry
from rocketlet.common.codes import ResponseCode
from rocketlet.common.errors import ResponseError
from rocketlet.common.properties import parse_properties
from rocketlet.remoting.codec.request_codes import RequestCode


class Collected(NamedTuple):
    """A hook and what it has made."""

    hook: Telemetry
    tracer: trace.Tracer
    exporter: InMemorySpanExporter
    reader: InMemoryMetricReader

    def spans(self, name: str) -> list[ReadableSpan]:
        """Return the ended spans of a name."""
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def metrics(self) -> dict[str, list[tuple[Mapping[str, Any], Any]]]:
        """Return the attributes and values of each metric; of a histogram its count."""
        data = self.reader.get_metrics_data()
        assert data is not None
        [resource] = data.resource_metrics
        return {
            metric.name: [
                (dict(point.attributes or {}), getattr(point, "value", getattr(point, "count", None)))
                for point in metric.data.data_points
            ]
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def sums(self) -> dict[str, float]:
        """Return the sum of each histogram, in seconds."""
        data = self.reader.get_metrics_data()
        assert data is not None
        return {
            metric.name: point.sum
            for scope in data.resource_metrics[0].scope_metrics
            for metric in scope.metrics
            for point in metric.data.data_points
            if isinstance(point, HistogramDataPoint)
        }


@pytest.fixture
def collected() -> Collected:
    """Return a hook that exports to memory."""
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    meters = MeterProvider([reader], shutdown_on_exit=False)
    return Collected(Telemetry(provider, meters), provider.get_tracer("test"), exporter, reader)


async def test_send_makes_a_span_and_counts(cluster: ScriptedCluster, collected: Collected) -> None:
    """A child of the current span, with the conventions' attributes, and carried by the message."""
    cluster.routes["T"] = {"broker-a": 1}
    broker = await cluster.add_broker("broker-a")
    settings = ProducerSettings(hooks=(collected.hook,))
    async with Producer("pg", cluster.nameserver.address, settings=settings) as producer:
        with collected.tracer.start_as_current_span("request") as outer:
            sent = await producer.send(Message("T", b"123", tags="a", keys=["k1", "k2"], delay_level=3))
    [span] = collected.spans("send T")
    host, _, port = broker.address.rpartition(":")
    assert span.kind is SpanKind.PRODUCER
    assert span.parent is not None
    assert span.parent.span_id == outer.get_span_context().span_id
    assert dict(span.attributes or {}) == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "T",
        "messaging.destination.partition.id": "0",
        "messaging.message.id": sent.message_id,
        "messaging.message.body.size": 3,
        "messaging.rocketmq.message.tag": "a",
        "messaging.rocketmq.message.keys": ("k1", "k2"),
        "messaging.rocketmq.message.type": "delay",
        "messaging.rocketmq.message.delay_time_level": 3,
        "server.address": host,
        "server.port": int(port),
    }
    [request] = broker.asked(RequestCode.SEND_MESSAGE_V2)
    context = span.get_span_context()
    assert context is not None
    assert parse_properties(request.ext["i"])["traceparent"].startswith(
        f"00-{context.trace_id:032x}-{context.span_id:016x}-"
    )
    about = {"messaging.system": "rocketmq", "messaging.operation.name": "send", "messaging.destination.name": "T"}
    metrics = collected.metrics()
    assert metrics["messaging.client.sent.messages"] == [(about, 1)]
    assert metrics["messaging.client.operation.duration"] == [(about, 1)]


async def test_failed_send_is_an_error(cluster: ScriptedCluster, collected: Collected) -> None:
    """The span says so, and so do the metrics."""
    cluster.routes["T"] = {"broker-a": 1}
    await cluster.add_broker("broker-a", {RequestCode.SEND_MESSAGE_V2: refused(ResponseCode.MESSAGE_ILLEGAL)})
    settings = ProducerSettings(hooks=(collected.hook,))
    async with Producer("pg", cluster.nameserver.address, settings=settings) as producer:
        with pytest.raises(ResponseError):
            await producer.send(Message("T", b"x"))
    [span] = collected.spans("send T")
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == "ResponseError"
    [(attributes, count)] = collected.metrics()["messaging.client.sent.messages"]
    assert (attributes["error.type"], count) == ("ResponseError", 1)


@pytest.mark.parametrize("in_thread", [False, True])
async def test_listener_runs_in_the_trace_of_the_send(address: str, collected: Collected, in_thread: bool) -> None:
    """Its span is the current one, also in a thread, is a child of the send's and links to it."""
    loop, seen = asyncio.get_running_loop(), asyncio.Event()
    threads: list[threading.Thread] = []
    current: list[trace.Span] = []

    def note(_messages: list[ReceivedMessage]) -> None:
        threads.append(threading.current_thread())
        current.append(trace.get_current_span())
        loop.call_soon_threadsafe(seen.set)

    async def note_async(messages: list[ReceivedMessage]) -> None:
        note(messages)

    async with Producer("pg", address, settings=ProducerSettings(hooks=(collected.hook,))) as producer:
        await producer.send(Message("T", b"first of its topic"))
        listener = note if in_thread else note_async
        async with push_consumer(address, listener, expression="wanted", hooks=(collected.hook,)):
            await producer.send(Message("T", b"x", tags="wanted"))
            await seen.wait()
    *_, send = collected.spans("send T")
    [span] = collected.spans("process T")
    sent, context = send.get_span_context(), span.get_span_context()
    assert sent is not None
    assert context is not None
    assert span.kind is SpanKind.CONSUMER
    assert span.parent is not None
    assert (span.parent.trace_id, span.parent.span_id) == (sent.trace_id, sent.span_id)
    assert [link.context.span_id for link in span.links] == [sent.span_id]
    assert current[0].get_span_context() == context
    assert (threads[0] is threading.main_thread()) is not in_thread
    assert (span.attributes or {})["messaging.consumer.group.name"] == "cg"
    [(attributes, count)] = collected.metrics()["messaging.client.consumed.messages"]
    assert (attributes["messaging.operation.name"], count) == ("process", 1)


async def test_failed_listener_is_an_error(address: str, collected: Collected) -> None:
    """With the type of what it raised."""
    seen = asyncio.Event()

    async def fail(_messages: list[ReceivedMessage]) -> ConsumeResult:
        seen.set()
        raise KeyError("as the test wants it")

    async with Producer("pg", address) as producer:
        await producer.send(Message("T", b"first of its topic"))
        async with push_consumer(address, fail, expression="wanted", hooks=(collected.hook,), max_retries=0):
            await producer.send(Message("T", b"x", tags="wanted"))
            await seen.wait()
    [span] = collected.spans("process T")
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == "KeyError"
    assert span.parent is None
    assert not span.links


async def test_polled_messages_are_received_and_not_processed(address: str, collected: Collected) -> None:
    """The span tells that they were handed out, and by which send they came; how long they take nobody knows."""
    settings = PullConsumerSettings(hooks=(collected.hook,))
    async with Producer("pg", address, settings=ProducerSettings(hooks=(collected.hook,))) as producer:
        queue = (await producer.send(Message("T", b"x"))).queue
        async with PullConsumer("cg", address, settings=settings) as consumer:
            await consumer.assign([queue])
            await consumer.seek(queue, 0)
            async for _ in consumer:
                break
    [send], [span] = collected.spans("send T"), collected.spans("receive T")
    sent = send.get_span_context()
    assert sent is not None
    assert span.parent is not None
    assert span.parent.span_id == sent.span_id
    metrics = collected.metrics()
    [(attributes, count)] = metrics["messaging.client.consumed.messages"]
    assert (attributes["messaging.operation.name"], count) == ("receive", 1)
    assert "messaging.process.duration" not in metrics


COMMON: dict[str, Any] = {
    "messaging.system": "rocketmq",
    "messaging.destination.name": "T",
    "messaging.destination.partition.id": "0",
    "messaging.message.body.size": 3,
}
ONE = COMMON | {"messaging.message.id": "A"}
SENT: dict[str, Any] = {
    "messaging.operation.name": "send",
    "messaging.operation.type": "send",
    "server.address": "::1",
} | {"server.port": 10911}


SENDS: list[tuple[list[dict[str, str]], dict[str, Any]]] = [
    ([{}], ONE | {"messaging.rocketmq.message.type": "normal"}),
    (
        [{"TAGS": "a", "KEYS": "k1 k2", "DELAY": "3"}],
        ONE
        | {"messaging.rocketmq.message.tag": "a", "messaging.rocketmq.message.keys": ("k1", "k2")}
        | {"messaging.rocketmq.message.type": "delay", "messaging.rocketmq.message.delay_time_level": 3},
    ),
    (
        [{"TIMER_DELIVER_MS": "17"}],
        ONE | {"messaging.rocketmq.message.type": "delay", "messaging.rocketmq.message.delivery_timestamp": 17},
    ),
    ([{"TIMER_DELAY_MS": "17"}], ONE | {"messaging.rocketmq.message.type": "delay"}),
    ([{"DELAY": "soon"}], ONE | {"messaging.rocketmq.message.type": "delay"}),
    ([{"TRAN_MSG": "true"}], ONE | {"messaging.rocketmq.message.type": "transaction"}),
    ([{"TRAN_MSG": "false"}], ONE | {"messaging.rocketmq.message.type": "normal"}),
    (
        [{"TAGS": "a"}, {"TAGS": "b"}],
        COMMON
        | {"messaging.message.body.size": 6, "messaging.batch.message_count": 2}
        | {"messaging.rocketmq.message.type": "normal"},
    ),
]


@pytest.mark.parametrize(("properties", "expected"), SENDS)
def test_span_of_a_send_tells_what_is_sent(
    collected: Collected, properties: list[dict[str, str]], expected: dict[str, object]
) -> None:
    """By the conventions' names; of a batch how many messages it has instead of the names of one."""
    messages = [SentMessage("T", b"123", each) for each in properties]
    context = SendContext(
        group="pg", messages=messages, message_id="A", queue=QUEUE, address="[::1]:10911", started_at_ms=1_000
    )
    collected.hook.before_send(context)
    context.ended_at_ms = 3_500
    context.result = SendResult(SendStatus.SEND_OK, "A", "", MessageQueue("T", "broker-a", 7), 0)
    collected.hook.after_send(context)
    [span] = collected.spans("send T")
    assert dict(span.attributes or {}) == expected | SENT | {"messaging.destination.partition.id": "7"}
    assert span.status.status_code is StatusCode.UNSET
    assert collected.metrics()["messaging.client.sent.messages"][0][1] == len(messages)
    assert collected.sums() == {"messaging.client.operation.duration": 2.5}


@pytest.mark.parametrize(
    ("end", "error", "expected"),
    [
        (ConsumeEnd.SUCCESS, None, None),
        (ConsumeEnd.TIME_OUT, None, ("TIME_OUT", "TIME_OUT")),
        (None, None, ("FAILED", "FAILED")),
        (ConsumeEnd.EXCEPTION, KeyError("k"), ("KeyError", "'k'")),
    ],
)
def test_span_of_a_listener_tells_what_came_and_how_it_ended(
    collected: Collected, end: ConsumeEnd | None, error: Exception | None, expected: tuple[str, str] | None
) -> None:
    """Two messages of two senders: linked to both, child of none."""
    parents = [f"00-{'a' * 31}{number}-{'b' * 15}{number}-01" for number in (1, 2)]
    messages = [
        dataclasses.replace(received(number, b"123"), properties={"traceparent": each})
        for number, each in enumerate(parents)
    ]
    messages.append(received(3, b"4"))
    context = ConsumeContext(group="cg", messages=messages, queue=QUEUE, started_at_ms=1_000)
    collected.hook.before_consume(context)
    during = trace.get_current_span().get_span_context()
    context.ended_at_ms, context.end, context.error, context.has_succeeded = 1_250, end, error, expected is None
    collected.hook.after_consume(context)
    assert not trace.get_current_span().get_span_context().is_valid
    [span] = collected.spans("process T")
    assert span.get_span_context() == during
    assert span.parent is None
    assert [f"{link.context.span_id:x}" for link in span.links] == [f"{'b' * 15}{number}" for number in (1, 2)]
    operation = {"messaging.operation.name": "process", "messaging.consumer.group.name": "cg"}
    failed = {} if expected is None else {"error.type": expected[0]}
    assert dict(span.attributes or {}) == COMMON | operation | failed | {
        "messaging.operation.type": "process",
        "messaging.message.body.size": 7,
        "messaging.batch.message_count": 3,
    }
    assert (span.status.status_code, span.status.description) == (
        (StatusCode.UNSET, None) if expected is None else (StatusCode.ERROR, expected[1])
    )
    assert [event.name for event in span.events] == (["exception"] if error is not None else [])
    about = {"messaging.system": "rocketmq", "messaging.destination.name": "T"} | operation | failed
    assert collected.metrics() == {
        "messaging.client.consumed.messages": [(about, 3)],
        "messaging.process.duration": [(about, 1)],
    }
    assert collected.sums() == {"messaging.process.duration": 0.25}
