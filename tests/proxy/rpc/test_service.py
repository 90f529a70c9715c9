"""Requests that are no calls, calls that break the rules, and what peers may cost."""

import asyncio
import logging

import pytest
from grpc_ground import EchoMethods
from grpc_peer import CALL, Field, GrpcPeer, message
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common.errors import GrpcMessageError
from rocketlet.proxy.http2.frames import Http2Code, encode_reset, encode_window_update
from rocketlet.proxy.http2.limits import Http2Limits
from rocketlet.proxy.rpc.call import GrpcStatus
from rocketlet.proxy.rpc.headers import ENDLESS_MS, parse_timeout, status_trailers
from rocketlet.proxy.rpc.messages import MessageLimits

SAY, TALK, HOLD = b"/test.Echo/Say", b"/test.Echo/Talk", b"/test.Echo/Hold"


def serve(limits: MessageLimits | None = None, http2: Http2Limits | None = None) -> tuple[GrpcPeer, EchoMethods]:
    """Return a peer of methods for tests, and these."""
    echo = EchoMethods()
    return GrpcPeer(echo.methods(), limits, http2), echo


def say(peer: GrpcPeer, stream_id: int, body: bytes) -> bytes:
    """Return a whole call."""
    return peer.headers(stream_id, SAY) + peer.data(stream_id, message(body), ends=True)


def changed(name: bytes, value: bytes | None) -> list[Field]:
    """Return the headers of a call with one that is changed, or left out."""
    return [
        (b":path", SAY),
        *(field for field in CALL if field[0] != name),
        *([] if value is None else [(name, value)]),
    ]


async def test_calls_of_one_read_share_a_turn() -> None:
    """They are called one after the other, what they share is done once, and their answers are one write."""
    peer, _ = serve()
    before = peer.turns
    peer.transport.writes.clear()
    peer.send(*(say(peer, stream_id, b"%d" % stream_id) for stream_id in (1, 3, 5)))
    assert (peer.turns - before, len(peer.transport.writes)) == (1, 1)
    answers = peer.answers()
    assert {stream_id: answer.body for stream_id, answer in answers.items()} == {
        stream_id: message(b"%d" % stream_id) for stream_id in (1, 3, 5)
    }
    assert {answer.fields[b"grpc-status"] for answer in answers.values()} == {b"0"}
    assert peer.service.open_calls == 0


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        (b":method", b"GET", b"405"),
        (b":method", b"HEAD", b"405"),
        (b"content-type", None, b"415"),
        (b"content-type", b"application/json", b"415"),
        (b"content-type", b"application/grpcweb", b"415"),
        (b"te", None, b"400"),
    ],
)
async def test_requests_that_are_no_calls(name: bytes, value: bytes | None, status: bytes) -> None:
    """They are answered in the words of HTTP, with a sentence for whoever reads it."""
    peer, echo = serve()
    peer.send(peer.raw_headers(1, changed(name, value)), peer.data(1, message(b"x"), ends=True), say(peer, 3, b"on"))
    answers = peer.answers()
    assert (answers[1].fields[b":status"], answers[1].ends) == (status, 1)
    assert b"grpc-status" not in answers[1].fields
    assert answers[1].body.startswith(b"this port serves gRPC: ") is (value != b"HEAD")
    assert answers[3].body == message(b"on")
    assert len(echo.metadata) == 1


@pytest.mark.parametrize("content_type", [b"application/grpc+proto", b"application/grpc;charset=utf-8"])
async def test_content_types_of_calls(content_type: bytes) -> None:
    """What stands behind the type makes no difference."""
    peer, _ = serve()
    peer.send(peer.raw_headers(1, changed(b"content-type", content_type)), peer.data(1, message(b"x"), ends=True))
    assert peer.answers()[1].fields[b"grpc-status"] == b"0"


@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        (SAY, b"", GrpcStatus.INTERNAL, b"the request has no message"),
        (SAY, message(b"1") + message(b"2"), GrpcStatus.INTERNAL, b"the request is more than one message"),
        (SAY, message(b"one")[:-1], GrpcStatus.INTERNAL, b"the request ends within a message"),
        (TALK, message(b"one")[:-1], GrpcStatus.INTERNAL, b"the request ends within a message"),
        (SAY, message(bytes(2_001))[:9], GrpcStatus.RESOURCE_EXHAUSTED, b"a message is 2001 bytes, limit is 2000"),
        (b"/test.Echo/None", message(b"1"), GrpcStatus.UNIMPLEMENTED, b"there is no method /test.Echo/None"),
        (b"\xff%", message(b"1"), GrpcStatus.UNIMPLEMENTED, b"there is no method %C3%BF%25"),
    ],
)
async def test_calls_that_break_the_rules(path: bytes, body: bytes, status: GrpcStatus, text: bytes) -> None:
    """Each is told what is wrong with it, once, in headers alone; the next is served."""
    peer, _ = serve(MessageLimits(max_message_bytes=2_000))
    for ends_apart in (False, True):
        first = 5 if ends_apart else 1
        end = peer.data(first, b"", ends=True) if ends_apart else b""
        peer.send(
            peer.headers(first, path), peer.data(first, body, ends=not ends_apart), end, say(peer, first + 2, b"on")
        )
        answers = peer.answers()
        fields = answers[first].fields
        assert (fields[b"grpc-status"], fields[b"grpc-message"]) == (b"%d" % status, text)
        assert (answers[first].ends, answers[first + 2].body) == (1, message(b"on"))
    assert peer.service.open_calls == 0


async def test_request_without_a_body() -> None:
    """A stream may say nothing at all; a unary call may not."""
    peer, _ = serve()
    peer.send(peer.headers(1, TALK, ends=True), peer.headers(3, SAY, ends=True))
    answers = peer.answers()
    assert [answers[stream_id].fields[b"grpc-status"] for stream_id in (1, 3)] == [b"0", b"13"]


@pytest.mark.parametrize(
    ("text", "timeout_ms"),
    [
        (b"1H", 3_600_000),
        (b"2M", 120_000),
        (b"30S", 30_000),
        (b"99999999m", 99_999_999),
        (b"1u", 1),
        (b"1001u", 2),
        (b"0n", 0),
        (b"525600H", None),
        (b"99999999H", None),
        (b"%dS" % (ENDLESS_MS // 1_000), None),
    ],
)
def test_timeouts(text: bytes, timeout_ms: int | None) -> None:
    """They are whole milliseconds, rounded up; those that nobody will see the end of are none."""
    assert parse_timeout(text) == timeout_ms


@pytest.mark.parametrize("text", [b"", b"1", b"S", b"-1S", b"1.5S", b"123456789m", b"1s", b" 1S"])
async def test_timeouts_that_are_none(text: bytes) -> None:
    """The call ends with what was wrong."""
    with pytest.raises(GrpcMessageError):
        parse_timeout(text)
    peer, _ = serve()
    peer.send(peer.headers(1, SAY, [(b"grpc-timeout", text)]), say(peer, 3, b"on"))
    answers = peer.answers()
    assert (answers[1].fields[b"grpc-status"], answers[3].body) == (b"13", message(b"on"))


def test_texts_of_statuses() -> None:
    """What is not plain ASCII is in percent; a long one is cut."""
    assert status_trailers(GrpcStatus.OK, "") == ((b"grpc-status", b"0"),)
    text = "100% \n\tä\ud800~"
    assert status_trailers(GrpcStatus.NOT_FOUND, text)[1] == (b"grpc-message", b"100%25 %0A%09%C3%A4?~")
    assert len(status_trailers(GrpcStatus.NOT_FOUND, "x" * 5_000)[1][1]) == 1_024


async def test_two_thousand_idle_streams(caplog: pytest.LogCaptureFixture) -> None:
    """They are held and counted, cost no timer and no line in the log, and leave nothing."""
    peers = [serve()[0] for _ in range(2)]
    for peer in peers:
        planned = peer.clock.next_at_ms
        for number in range(1_000):
            peer.send(peer.headers(2 * number + 1, TALK, [(b"grpc-timeout", b"525600H")]))
        assert peer.service.open_calls == 1_000
        assert peer.clock.next_at_ms == planned
        assert 2_000_000 < peer.links.held.total < 4_000_000
        peer.link.connection_lost(None)
        assert (peer.service.open_calls, peer.links.held.total) == (0, 0)
    assert caplog.text == ""


async def test_streams_above_what_all_may_hold(caplog: pytest.LogCaptureFixture) -> None:
    """A peer that holds more than there is for all of them is cut off, and told of in the log."""
    peer, echo = serve()
    peer.links.held = type(peer.links.held)(1_000_000)
    for number in range(1_000):
        peer.send(peer.headers(2 * number + 1, TALK))
        if peer.transport.is_over:
            break
    assert peer.transport.is_over
    assert len(echo.held) < 500
    assert "that are held for all peers, limit is 1000000" in caplog.text


async def test_endless_stream() -> None:
    """What is handed on of a stream is not held, however long it lasts; its window is opened again and again."""
    peer, echo = serve()
    peer.send(peer.headers(1, TALK), encode_window_update(0, 1 << 30), encode_window_update(1, 1 << 30))
    most = 0
    for _ in range(500):
        peer.send(peer.data(1, message(bytes(10_000))), peer.data(1, message(b"x") * 100))
        most = max(most, peer.link.held_bytes)
        peer.transport.writes.clear()
    assert not echo.held[0].is_over
    assert most < 10_000


async def test_message_in_many_pieces_is_held_until_its_call_is_over() -> None:
    """It counts for its connection, in single bytes as well, and no more when the call is answered."""
    peer, _ = serve()
    whole = message(bytes(20_000))
    peer.send(peer.headers(1, SAY))
    for at in range(len(whole) - 1):
        peer.send(peer.data(1, whole[at : at + 1]))
    assert 20_000 < peer.link.held_bytes < 25_000
    peer.send(peer.data(1, whole[-1:], ends=True))
    assert peer.answers()[1].fields[b"grpc-status"] == b"0"


async def test_peer_that_resets_its_calls() -> None:
    """Each service hears of it; nothing is left."""
    peer, echo = serve()
    for stream_id in range(1, 101, 2):
        peer.send(peer.headers(stream_id, HOLD), peer.data(stream_id, message(b""), ends=True))
        peer.send(encode_reset(stream_id, Http2Code.CANCEL))
    assert [call.is_over for call in echo.held] == [True] * 50
    assert (peer.service.open_calls, peer.answers()) == (0, {})


async def test_service_that_fails_to_give_back(caplog: pytest.LogCaptureFixture) -> None:
    """Others are told as well, and the log says whose fault it was."""
    peer, echo = serve()
    peer.send(peer.headers(1, HOLD), peer.data(1, message(b""), ends=True))
    told: list[int] = []

    def fail() -> None:
        raise RuntimeError("cannot give back")

    echo.held[0].on_over(fail)
    echo.held[0].on_over(lambda: told.append(1))
    peer.send(encode_reset(1, Http2Code.CANCEL))
    assert told == [1]
    assert "giving back what /test.Echo/Hold from 127.0.0.1:50000 held failed" in caplog.text
    assert "cannot give back" in caplog.text


async def test_finished_call_tells_nobody() -> None:
    """Who asked to hear of its end does not hear of a good one."""
    peer, echo = serve()
    peer.send(peer.headers(1, HOLD), peer.data(1, message(b""), ends=True))
    echo.held[0].finish()
    await asyncio.sleep(0)
    echo.held[0].on_over(echo.over.set)
    peer.link.connection_lost(None)
    assert not echo.over.is_set()
    assert peer.answers()[1].ends == 1


FIELDS = st.fixed_dictionaries(
    {
        b":method": st.sampled_from([b"POST", b"GET"]),
        b":path": st.sampled_from([SAY, TALK, HOLD, b"/test.Echo/Break", b"/x"]),
        b"content-type": st.sampled_from([b"application/grpc", b"application/grpc+proto", b"text/html"]),
    },
    optional={
        b"te": st.just(b"trailers"),
        b"grpc-timeout": st.one_of(st.binary(max_size=4), st.sampled_from([b"1S", b"0n", b"9999999H"])),
        b"grpc-encoding": st.one_of(st.binary(max_size=4), st.sampled_from([b"gzip", b"identity"])),
        b"x-any": st.binary(max_size=9),
    },
)
PIECE = st.one_of(st.binary(max_size=20), st.binary(max_size=9).map(message), st.just(message(b"")))


@given(st.lists(st.tuples(FIELDS, st.lists(PIECE, max_size=4), st.booleans()), max_size=6))
async def test_any_calls(calls: list[tuple[dict[bytes, bytes], list[bytes], bool]]) -> None:
    """Whatever the headers and the bodies are, each request that ends has one end, or waits for its service."""
    logging.disable()
    try:
        peer, echo = serve(MessageLimits(max_message_bytes=100, max_inflated_bytes=100))
        for number, (fields, pieces, ends) in enumerate(calls):
            stream_id = 2 * number + 1
            peer.send(peer.raw_headers(stream_id, [(b":scheme", b"http"), *fields.items()]))
            peer.send(*(peer.data(stream_id, piece) for piece in pieces if piece))
            if ends:
                peer.send(peer.data(stream_id, b"", ends=True))
        peer.clock.advance(2_000)
        await asyncio.sleep(0)
        peer.service.end_all()
        await asyncio.sleep(0)
        answers = peer.answers()
        assert peer.service.open_calls == 0
        assert all(call.is_over for call in echo.held)
        for stream_id in range(1, 2 * len(calls), 2):
            assert (answers[stream_id].ends == 1) != (answers[stream_id].ends == 0 and answers[stream_id].is_reset)
        assert not peer.transport.is_over
    finally:
        logging.disable(logging.NOTSET)
