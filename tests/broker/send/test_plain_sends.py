"""The short way of a plain message and the long way of any message do the same."""

import asyncio
import gc
import json
import logging
import random
import tempfile
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_connection import MemoryTransport, connect_in_memory
from msgspec.structs import replace
from raw_calls import until
from served import observe

import rocketlet.broker.server as broker_server
from rocketlet.broker.send import handlers as send_handlers
from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.ids import UniqueIds
from rocketlet.common.properties import header_codecs
from rocketlet.remoting.codec.frames import PREFIX
from rocketlet.remoting.transport.connection import Connection
from rocketlet.testing.manual_clock import ManualClock

if header_codecs is None:
    pytest.skip("there is no short way: the compiled codecs need a C compiler", allow_module_level=True)

USUAL = {
    "a": "group",
    "b": "T",
    "c": "TBW102",
    "d": "1",
    "e": "0",
    "f": "0",
    "g": "1700000000000",
    "h": "0",
    "i": "UNIQ_KEY\x01K\x02WAIT\x01true",
    "j": "0",
    "k": "false",
    "m": "false",
    "n": "broker-a",
}
NUMBERS = st.sampled_from(["0", "1", "4", "8", "-1", "+1", "01", "2147483647", "2147483648", "", "x", "1.0"])
CHUNKS = st.tuples(
    st.sampled_from(
        ["TAGS", "KEYS", "UNIQ_KEY", "WAIT", "DELAY", "TRAN_MSG", "MSG_REGION", "POP_CK", "CLUSTER", "own"]
    ),
    st.sampled_from(["\x01", "\x011", "\x01true", "\x01false", "\x01消息", "", '\x01"\\', "\x01\x01"]),
).map("".join)
PROPERTIES = st.tuples(
    st.lists(CHUNKS, max_size=3).map("\x02".join), st.sampled_from(["\x02", ""]), st.sampled_from(["\x02", ""])
).map(lambda parts: f"{parts[0]}{parts[1]}UNIQ_KEY\x01K{parts[2]}")
TABLES = st.fixed_dictionaries(
    {},
    optional={
        "b": st.sampled_from(["T", "Other", "%RETRY%g", "SCHEDULE_TOPIC_XXXX", "Töpic", "a b"]),
        **dict.fromkeys("defghjl", NUMBERS),
        "i": PROPERTIES,
        **{name: st.sampled_from(["true", "false", "TRUE", "", "1"]) for name in "km"},
        "zone": st.just("x"),
    },
).map(lambda changes: USUAL | changes)
REQUESTS = st.tuples(TABLES, st.sampled_from([b"body", b""]), st.booleans(), st.booleans())


def frame(table: dict[str, str], body: bytes, *, escapes: bool, is_oneway: bool, opaque: int) -> bytes:
    """Return a send as clients write it."""
    head = {"code": 310, "extFields": table, "flag": 2 if is_oneway else 0, "language": "JAVA", "opaque": opaque}
    header = json.dumps({**head, "version": 493}, separators=(",", ":"), ensure_ascii=escapes).encode()
    return PREFIX.pack(4 + len(header) + len(body), len(header)) + header + body


FIRST = frame(USUAL, b"first", escapes=True, is_oneway=False, opaque=0)


class Twin(NamedTuple):
    """A broker, and a connection to it."""

    broker: Broker
    connection: Connection
    transport: MemoryTransport

    def send(self, *frames: bytes) -> tuple[bytes, bytes]:
        """Return what one read of these is answered, and what the log holds then; the host is that of both."""
        self.transport.last_write = b""
        self.connection.data_received(b"".join(frames))
        store = self.broker.store
        log = bytes(store.log_bytes(0, store.log_max_offset))
        host = store.store_host
        return self.transport.last_write.replace(host.hex().upper().encode(), b"HOST"), log.replace(host, b"HOST")


def _last(count: int) -> int:
    return count - 1


def _made(_: UniqueIds) -> str:
    return "made"


@asynccontextmanager
async def twin(*, is_short: bool, **more: str) -> AsyncGenerator[Twin]:
    """Run a broker with a short way or without one; it knows topic T, and has a message in it."""
    async with AsyncExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        if not is_short:
            patch.setattr(send_handlers, "header_codecs", None)
        patch.setattr(logging.root.manager, "disable", logging.CRITICAL)  # pytest would keep it, with brokers in it
        patch.setattr(random, "randrange", _last)  # the queue of who leaves that to the broker
        patch.setattr(UniqueIds, "next_id", _made)  # of who has sent none
        observed, clock = observe(patch, broker_server), ManualClock()
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        java = {"storePathRootDir": directory, "listenPort": "0", "brokerName": "broker-a", **more}
        broker = await stack.enter_async_context(Broker(BrokerConfig.from_java(java), clock))
        topics = broker.parts.state.topics
        topics.ensure("T", 8)
        connection, transport = connect_in_memory(observed[0].handlers, clock)
        connection.data_received(FIRST)
        await until(lambda: not topics.unsaved and transport.last_write != b"")
        yield Twin(broker, connection, transport)
        connection.connection_lost(None)


@settings(max_examples=40)
@given(st.lists(REQUESTS, min_size=1, max_size=12))
def test_both_ways_are_alike(requests: list[tuple[dict[str, str], bytes, bool, bool]]) -> None:
    """Answers, and each byte of the log, of whatever comes in one read."""
    frames = [
        frame(table, body, escapes=escapes, is_oneway=is_oneway, opaque=number)
        for number, (table, body, escapes, is_oneway) in enumerate(requests)
    ]

    async def send_both() -> None:
        async with twin(is_short=True) as short, twin(is_short=False) as long:
            assert short.send(*frames) == long.send(*frames)

    asyncio.run(send_both())
    gc.collect()  # each broker that has ended holds megabytes until then


async def test_usual_send_goes_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """One as official clients write it, once its topic is known."""

    def refuse(*_: object) -> None:
        raise AssertionError("it went the long way")

    async with twin(is_short=True) as short:
        monkeypatch.setattr(send_handlers, "decode_send_header", refuse)
        answer, log = short.send(frame(USUAL, b"body", escapes=True, is_oneway=False, opaque=7))
    assert b'"code":0,' in answer
    assert b'"opaque":7,' in answer
    assert b"UNIQ_KEY\x01K\x02" in log


@pytest.mark.parametrize("obstacle", ["permission", "refusal", "size", "tags"])
async def test_obstacles_are_seen_by_both(obstacle: str) -> None:
    """A broker that may not be written to, or whose store takes nothing; too large a message; a topic of more tags."""
    async with twin(is_short=True) as short, twin(is_short=False) as long:
        before = short.broker.store.log_max_offset
        for one in (short, long):
            state = one.broker.parts.state
            topic = state.topics.get("T")
            assert topic is not None
            if obstacle == "permission":
                state.settings.change({"brokerPermission": "4"})
                state.topics.put(replace(topic, order=True))
            elif obstacle == "refusal":
                state.store.take_copies_only()
            elif obstacle == "tags":
                state.topics.put(replace(topic, topic_filter_type="MULTI_TAG"))
        body = bytes(5 << 20) if obstacle == "size" else b"body"
        answer, log = short.send(frame(USUAL, body, escapes=True, is_oneway=False, opaque=1))
        assert (answer, log) == long.send(frame(USUAL, body, escapes=True, is_oneway=False, opaque=1))
        assert (b'"code":0,' in answer) is (len(log) > before) is (obstacle == "tags")


@pytest.mark.parametrize("topic", ["%RETRY%g", "SCHEDULE_TOPIC_XXXX"])
async def test_topics_that_need_care_get_it(topic: str) -> None:
    """A message that came back too often is a dead letter, and nobody may send to a topic of the broker's own."""
    sent = frame(USUAL | {"b": topic, "j": "99", "l": "1"}, b"body", escapes=True, is_oneway=False, opaque=1)
    async with twin(is_short=True) as short, twin(is_short=False) as long:
        for one in (short, long):
            topics = one.broker.parts.state.topics
            for name in (topic, "%DLQ%g"):
                topics.ensure(name, 1)
            topics.unsaved.clear()
        answer, log = short.send(sent)
        assert (answer, log) == long.send(sent)
        assert (b'"code":0,' in answer) is (b"%DLQ%g" in log) is (topic == "%RETRY%g")
