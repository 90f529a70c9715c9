"""The commonest requests take a shorter way: what is stored and answered is what the way of all others does."""

from typing import Any

import pytest
from grpc_calls import LocalPort, make_call
from hypothesis import HealthCheck, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from slow_disk import SlowDisk

from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.broker.topic.topics import MESSAGE_TYPE, make_topic
from rocketlet.common.ids import encode_host
from rocketlet.common.properties import TIMER_DELIVER_MS, TIMER_OUT_MS, encode_properties, parse_properties
from rocketlet.common.record import NewRecord, decode_record, encode_record
from rocketlet.proxy.http2.compiled import codecs
from rocketlet.proxy.messages import brief, delivery, v2
from rocketlet.proxy.messages.brief import encode_acknowledged, encode_sent
from rocketlet.proxy.messages.enums import Code
from rocketlet.proxy.messages.publishing import RESERVED
from rocketlet.proxy.messages.statuses import OK
from rocketlet.proxy.services import acknowledging, sending
from rocketlet.testing.manual_clock import ManualClock

WORD = st.one_of(st.sampled_from(["", " ", "a", "TagA", "a b", "a|b", "é", "\x7f", "\n"]), st.text(max_size=6))
NAMES = st.one_of(st.sampled_from([*sorted(RESERVED)[:3], "__SHARDINGKEY", "TRACE_CONTEXT", "", "a", "b"]), WORD)
STAMP = st.tuples(st.integers(-2, 1 << 34), st.integers(-5, 1_100_000_000))
SYSTEM = st.fixed_dictionaries(
    {"message_id": WORD, "body_encoding": st.integers(0, 3), "message_type": st.integers(0, 6)},
    optional={
        "tag": WORD,
        "keys": st.lists(WORD, max_size=2),
        "born_host": WORD,
        "born_timestamp": STAMP,
        "delivery_timestamp": STAMP,
        "queue_id": st.integers(-1, 9),
        "message_group": WORD,
        "priority": st.integers(-1, 9),
        "trace_context": WORD,
        "delivery_attempt": st.integers(-1, 3),
        "body_digest": st.just(v2.Digest(type=1, checksum="0")),
    },
)
HOST = encode_host("127.0.0.1", 50_000)
NO_PROPERTIES: dict[str, str] = {}
COMMON = {
    "message_id": "01AB",
    "body_encoding": 1,
    "message_type": 1,
    "born_host": "here",
    "born_timestamp": (1_700_000_000, 5_000_000),
    "queue_id": 3,
}


@pytest.fixture
def port(broker: Broker) -> LocalPort:
    """Return the services of a broker with two topics."""
    if codecs is None:
        pytest.skip("the compiled codecs are not built: they need a C compiler")
    port = LocalPort(broker)
    for name, kind in (("T", "MIXED"), ("F", "FIFO")):
        topic = make_topic(name, 1)
        topic.attributes = {MESSAGE_TYPE: kind}
        port.operations.topics.put(topic)
        port.operations.topics.unsaved.discard(name)
    return port


def make_message(
    fields: dict[str, Any], properties: dict[str, str], topic: str = "T", body: bytes = b"body"
) -> v2.Message:
    """Return a message; instants are seconds and nanoseconds."""
    made = v2.Message(topic=v2.Resource(name=topic), user_properties=properties, body=body)
    plain = {name: value for name, value in fields.items() if not isinstance(value, tuple)}
    made.system_properties.MergeFrom(v2.SystemProperties(**plain))
    for name in fields.keys() - plain.keys():
        stamp = getattr(made.system_properties, name)
        stamp.seconds, stamp.nanos = fields[name]
    return made


def both_ways(port: LocalPort, method: str, request: bytes) -> list[tuple[bytes, Any]]:
    """Return what is answered and stored, by the shorter way and by that of all others."""
    found: list[tuple[bytes, Any]] = []
    for compiled in (codecs, None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sending, "codecs", compiled)
            patch.setattr(acknowledging, "codecs", compiled)
            before = port.operations.store.log_max_offset
            call = port.start(method, request, make_call())
            store = port.operations.store
            data = b"" if store.log_max_offset == before else store.record_at(before)
            stored = decode_record(data) if data else None
            found.append(
                (b"".join(call.sent), stored and (stored.topic, stored.body, stored.properties, stored.born_at_ms))
            )
    return found


def without_offset(answer: bytes) -> v2.SendMessageResponse:
    """Return an answer but for the place, which is the next one each time."""
    found = v2.SendMessageResponse.FromString(answer)
    for entry in found.entries:
        entry.offset = 0
    return found


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    system=st.one_of(SYSTEM, SYSTEM.map(lambda some: {**COMMON, **some}), st.just(COMMON)),
    topic=st.sampled_from(["T", "T", "T", "F", "none", "%RETRY%g", "TBW102", "a b", ""]),
    properties=st.one_of(st.just(NO_PROPERTIES), st.dictionaries(NAMES, WORD, max_size=3)),
    body=st.one_of(st.just(b"body"), st.binary(max_size=3)),
)
@example(system=COMMON, topic="T", properties={"a": "1"}, body=b"body")
@example(system=COMMON | {"message_type": 4}, topic="T", properties={}, body=b"body")
@example(system=COMMON | {"delivery_timestamp": (0, -1)}, topic="T", properties={}, body=b"body")
def test_sends(port: LocalPort, system: dict[str, Any], topic: str, properties: dict[str, str], body: bytes) -> None:
    """Whatever a message has."""
    sent = make_message(system, properties, topic, body)
    request = v2.SendMessageRequest(messages=[sent]).SerializeToString()
    (short, kept), (other, kept_by_other) = both_ways(port, "SendMessage", request)
    assert without_offset(short) == without_offset(other)
    assert kept == kept_by_other
    assert codecs is not None
    if found := codecs.read_send(request):
        *_, text, by_name = found
        assert parse_properties(text) == by_name


def test_common_messages_take_the_shorter_way(port: LocalPort) -> None:
    """As official clients send them: with tag, keys, properties and a namespace."""
    sent = make_message(COMMON | {"tag": "TagA", "keys": ["k1", "k2"]}, {"a": "1"})
    sent.topic.resource_namespace = "n"
    data = v2.SendMessageRequest(messages=[sent]).SerializeToString()
    assert codecs is not None
    found = codecs.read_send(data)
    assert found is not None
    *said, text, properties = found
    assert said == ["T", "01AB", 1_700_000_000_005, b"body", {"a": "1"}]
    assert (properties["KEYS"], parse_properties(text)) == ("k1 k2", properties)
    ack = v2.AckMessageRequest(group=v2.Resource(name="g"), topic=v2.Resource(name="T"))
    ack.entries.add(message_id="01AB", receipt_handle="1 2 3")
    assert codecs.read_ack(ack.SerializeToString()) == ("g", "T", "01AB", "1 2 3")
    ack.entries.add(message_id="01AC", receipt_handle="1 2 4")
    assert codecs.read_ack(ack.SerializeToString()) is None
    assert codecs.read_send(v2.SendMessageRequest(messages=[sent, sent]).SerializeToString()) is None


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=40), cut=st.integers(0, 120), change=st.integers(0, 255))
def test_damaged_requests(port: LocalPort, data: bytes, cut: int, change: int) -> None:
    """Any bytes, and requests that are cut off or changed in one place, are answered alike."""
    sent = make_message(COMMON, {"a": "1"})
    whole = v2.SendMessageRequest(messages=[sent]).SerializeToString()
    changed = whole[:cut] + bytes([change]) + whole[cut + 1 :]
    for request in (data, whole[:cut], changed):
        (short, kept), (other, kept_by_other) = both_ways(port, "SendMessage", request)
        assert without_offset(short) == without_offset(other)
        assert kept == kept_by_other


@given(name=st.text(max_size=200), place=st.integers(0, (1 << 63) - 1), handle=st.text(max_size=300))
def test_brief_answers(name: str, place: int, handle: str) -> None:
    """They are what the library writes, by their compiled twins and without."""
    for compiled in {codecs, None}:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(brief, "codecs", compiled)
            check_brief_answers(name, place, handle)


def check_brief_answers(name: str, place: int, handle: str) -> None:
    """Compare both with those of the library."""
    entry = v2.SendResultEntry(status=OK, message_id=name, transaction_id=name, offset=place)
    sent = v2.SendMessageResponse.FromString(encode_sent(name, place))
    assert sent == v2.SendMessageResponse(status=OK, entries=[entry])
    assert encode_sent(name, place) == sent.SerializeToString()
    done = v2.AckMessageResultEntry(message_id=name, receipt_handle=handle, status=OK)
    acknowledged = v2.AckMessageResponse(status=OK, entries=[done])
    assert encode_acknowledged(name, handle) == acknowledged.SerializeToString()


PROPERTIES = st.dictionaries(
    st.one_of(st.sampled_from([*sorted(delivery.HIDDEN), *sorted(delivery.UNUSUAL)]), st.text(max_size=6)),
    st.one_of(st.sampled_from(["", "1", "a b", "true"]), st.text(max_size=6)),
    max_size=6,
).map(lambda drawn: {name: text for name, text in drawn.items() if not {*"\1\2"} & {*name, *text}})
INSTANT = st.one_of(st.integers(-5, 5_000), st.integers(0, 1 << 42))
COUNT = st.one_of(st.integers(0, 300), st.integers(0, (1 << 31) - 1))


@given(
    properties=PROPERTIES,
    body=st.one_of(st.binary(max_size=3), st.binary(min_size=120, max_size=140)),
    texts=st.tuples(st.text(min_size=1, max_size=140), st.text(max_size=300)),
    times=st.tuples(INSTANT, INSTANT),
    places=st.tuples(COUNT, st.one_of(COUNT, st.integers(0, (1 << 63) - 1)), COUNT),
)
def test_deliveries(
    properties: dict[str, str],
    body: bytes,
    texts: tuple[str, str],
    times: tuple[int, int],
    places: tuple[int, int, int],
) -> None:
    """What is handed out by the shorter way is what the library writes, whatever a message has."""
    check_delivery(properties, body, texts, times, places)


@pytest.mark.parametrize("text", ["1", "true"])
@pytest.mark.parametrize("name", sorted(delivery.HIDDEN | delivery.UNUSUAL))
def test_deliveries_with_each_property(name: str, text: str) -> None:
    """No property that servers use is left to chance."""
    check_delivery({name: text}, b"body", ("T", "1 2 3"), (1, 2), (0, 1, 1))


def check_delivery(
    properties: dict[str, str],
    body: bytes,
    texts: tuple[str, str],
    times: tuple[int, int],
    places: tuple[int, int, int],
) -> None:
    """Compare what is handed out with what the library writes."""
    properties = properties | dict.fromkeys(properties.keys() & {TIMER_DELIVER_MS, TIMER_OUT_MS}, "1")
    queue_id, queue_offset, attempt = places
    new = NewRecord("T", queue_id, body, encode_properties(properties), properties, 0, 0, times[0], HOST)
    record = decode_record(encode_record(new, queue_offset, 0, times[1], HOST))
    assert record is not None
    found = v2.ReceiveMessageResponse.FromString(delivery.encode_delivery(record, texts[0], texts[1], attempt))
    made = v2.ReceiveMessageResponse()
    delivery.deliver(made.message, record, texts[0], texts[1], attempt)
    assert found == made


@pytest.mark.parametrize("compiled", [codecs, None], ids=["compiled", "pure"])
async def test_a_message_that_was_not_written(
    settings: dict[str, str], clock: ManualClock, monkeypatch: pytest.MonkeyPatch, compiled: Any
) -> None:
    """It is not acknowledged, by neither way."""
    monkeypatch.setattr(sending, "codecs", compiled)
    disk = SlowDisk()
    async with Broker(BrokerConfig.from_java(settings), clock, disk) as broker:
        port = LocalPort(broker)
        port.operations.topics.put(make_topic("T", 1))
        port.operations.topics.unsaved.discard("T")
        assert port.send(make_message(COMMON, {})).status.code == Code.OK
        disk.has_room = False
        answer = port.send(make_message(COMMON, {}))
        assert answer.status.code == answer.entries[0].status.code == Code.INTERNAL_SERVER_ERROR
