"""Spans and metrics by OpenTelemetry's conventions for messaging."""

import asyncio
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from scripted_cluster import ScriptedCluster, refused
from subscribed import push_consumer

from rocketlet.client import (
    ConsumeResult,
    Message,
    Producer,
    ProducerSettings,
    PullConsumer,
    PullConsumerSettings,
    ReceivedMessage,
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
    about = {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "send",
        "messaging.destination.name": "T",
    }
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
