"""Spans and metrics of OpenTelemetry, by its conventions for messaging (extra ``otel``).

    span              kind        around                         parent                           links
    send TOPIC        producer    each attempt to send           the current span                 none
    process TOPIC     consumer    each call of a listener        that of the message if it is one those of all messages
    receive TOPIC     consumer    each time messages are polled  the same                         the same

    metric                                   of
    messaging.client.operation.duration      each attempt to send, seconds
    messaging.client.sent.messages           messages that were sent, or were to be
    messaging.client.consumed.messages       messages that listeners got, or that were polled
    messaging.process.duration               each call of a listener, seconds

The context of a span travels in properties of the messages, in the form that the application has chosen (by default
``traceparent``), so that the consumer's span belongs to the producer's trace. While a listener runs, its span is the
current one. Batches carry one context.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

try:
    from opentelemetry import context as otel_context
    from opentelemetry import metrics, propagate, trace
    from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
except ImportError as missing:
    raise ImportError("telemetry needs OpenTelemetry: pip install 'rocketlet[otel]'") from missing

from ...common.message import MessageQueue
from ...common.properties import DELAY, KEYS, TAGS, TIMER_DELAY_MS, TIMER_DELIVER_MS, TRANSACTION_PREPARED
from ..session.hooks import ConsumeContext, ConsumeEnd, SendContext, SentMessage

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue

NAME = "rocketlet"
SYSTEM = "rocketmq"

Attributes = dict[str, "AttributeValue"]


class Telemetry:
    """Spans and metrics for all producers and consumers whose ``settings.hooks`` it is in.

        ProducerSettings(hooks=(Telemetry(),))

    The providers are those that the application has set for OpenTelemetry unless others are given. A service that
    also has RocketMQ's own trace may have both.
    """

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        self._tracer = trace.get_tracer(NAME, tracer_provider=tracer_provider)
        meter = metrics.get_meter(NAME, meter_provider=meter_provider)
        self._operation_s = meter.create_histogram("messaging.client.operation.duration", "s")
        self._process_s = meter.create_histogram("messaging.process.duration", "s")
        self._sent = meter.create_counter("messaging.client.sent.messages", "{message}")
        self._consumed = meter.create_counter("messaging.client.consumed.messages", "{message}")

    def __repr__(self) -> str:
        return f"<Telemetry {self._tracer!r}>"

    # sending

    def before_send(self, context: SendContext) -> None:
        """Start a span, and let the messages carry it."""
        attributes = _common("send", context.queue) | _address(context.address) | _of_sent(context)
        span = self._tracer.start_span(f"send {context.queue.topic}", kind=SpanKind.PRODUCER, attributes=attributes)
        context.notes[self] = span
        propagate.inject(context.properties, trace.set_span_in_context(span))

    def after_send(self, context: SendContext) -> None:
        """End the span and count."""
        span = context.notes[self]
        assert isinstance(span, Span), "before_send put it there"
        result, attributes = context.result, _metric("send", context.queue.topic)
        if context.error is not None:
            attributes["error.type"] = type(context.error).__qualname__
            _mark_failed(span, context.error)
        if result is not None:
            span.set_attribute("messaging.destination.partition.id", str(result.queue.queue_id))
        span.end()
        self._sent.add(len(context.messages), attributes)
        self._operation_s.record((context.ended_at_ms - context.started_at_ms) / 1000, attributes)

    # consuming

    def before_consume(self, context: ConsumeContext) -> None:
        """Start a span that is the current one until the listener ends."""
        origins = [propagate.extract(message.properties) for message in context.messages]
        spans = [trace.get_current_span(origin).get_span_context() for origin in origins]
        operation = _operation_of(context)
        span = self._tracer.start_span(
            f"{operation} {context.messages[0].topic}",
            origins[0] if len(origins) == 1 and spans[0].is_valid else None,
            kind=SpanKind.CONSUMER,
            attributes=_common(operation, context.queue) | _of_received(context),
            links=[Link(each) for each in spans if each.is_valid],
        )
        context.notes[self] = span, otel_context.attach(trace.set_span_in_context(span))

    def after_consume(self, context: ConsumeContext) -> None:
        """End the span and count."""
        span, token = context.notes[self]  # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType] # as put there
        otel_context.detach(token)  # pyright: ignore[reportUnknownArgumentType] # as above
        assert isinstance(span, Span), "before_consume put it there"
        attributes = _metric(_operation_of(context), context.messages[0].topic) | {
            "messaging.consumer.group.name": context.group
        }
        if not context.has_succeeded:
            end = ConsumeEnd.FAILED if context.end is None else context.end
            attributes["error.type"] = end.name if context.error is None else type(context.error).__qualname__
            _mark_failed(span, context.error or end.name)
        span.end()
        self._consumed.add(len(context.messages), attributes)
        if not context.is_polled:
            self._process_s.record((context.ended_at_ms - context.started_at_ms) / 1000, attributes)


def _operation_of(context: ConsumeContext) -> str:
    return "receive" if context.is_polled else "process"


def _metric(operation: str, topic: str) -> Attributes:
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.destination.name": topic,
    }


def _common(operation: str, queue: MessageQueue) -> Attributes:
    return {
        **_metric(operation, queue.topic),
        "messaging.operation.type": operation,
        "messaging.destination.partition.id": str(queue.queue_id),
    }


def _address(address: str) -> Attributes:
    host, _, port = address.rpartition(":")
    return {"server.address": host.strip("[]"), "server.port": int(port)}


def _of_sent(context: SendContext) -> Attributes:
    first, count = context.messages[0], len(context.messages)
    return {
        "messaging.message.body.size": sum(len(each.body) for each in context.messages),
        **({"messaging.batch.message_count": count} if count > 1 else _of_one(context.message_id, first.properties)),
        "messaging.rocketmq.message.type": _type_of(first),
    }


def _of_received(context: ConsumeContext) -> Attributes:
    messages = context.messages
    first, count = messages[0], len(messages)
    return {
        "messaging.consumer.group.name": context.group,
        "messaging.destination.name": first.topic,
        "messaging.message.body.size": sum(len(each.body) for each in messages),
        **({"messaging.batch.message_count": count} if count > 1 else _of_one(first.message_id, first.properties)),
    }


def _of_one(message_id: str, properties: Mapping[str, str]) -> Attributes:
    return dict(_describe(message_id, properties))


def _describe(message_id: str, properties: Mapping[str, str]) -> "Iterator[tuple[str, AttributeValue]]":
    yield "messaging.message.id", message_id
    if TAGS in properties:
        yield "messaging.rocketmq.message.tag", properties[TAGS]
    if KEYS in properties:
        yield "messaging.rocketmq.message.keys", properties[KEYS].split()
    for name, attribute in (
        (DELAY, "messaging.rocketmq.message.delay_time_level"),
        (TIMER_DELIVER_MS, "messaging.rocketmq.message.delivery_timestamp"),
    ):
        if properties.get(name, "").isdecimal():
            yield attribute, int(properties[name])


def _type_of(message: SentMessage) -> str:
    if message.properties.get(TRANSACTION_PREPARED) == "true":
        return "transaction"
    is_late = not {DELAY, TIMER_DELAY_MS, TIMER_DELIVER_MS}.isdisjoint(message.properties)
    return "delay" if is_late else "normal"


def _mark_failed(span: Span, error: BaseException | str) -> None:
    name = error if isinstance(error, str) else type(error).__qualname__
    span.set_attribute("error.type", name)
    span.set_status(Status(StatusCode.ERROR, str(error)))
    if isinstance(error, BaseException):
        span.record_exception(error)
