"""Calls of ``grpc.aio``, as a peer that knows nothing of us, over the port of a broker."""

import asyncio
import pathlib
from collections.abc import AsyncGenerator, Awaitable

import grpc
import grpc.aio
import pytest
from grpc_ground import SERVICE, Client, GrpcGround, ask, serving_grpc

pytestmark = pytest.mark.usefixtures("no_channels_left")
LARGE = {"grpc.max_receive_message_length": -1, "grpc.max_send_message_length": -1}


@pytest.fixture
async def ground(tmp_path: pathlib.Path) -> AsyncGenerator[GrpcGround]:
    """Serve a port."""
    async with serving_grpc(tmp_path / "store") as served:
        yield served


@pytest.fixture
async def client(ground: GrpcGround) -> AsyncGenerator[Client]:
    """Return a client in plain text."""
    async with ground.open(**LARGE) as channel:
        yield channel


async def failure_of(call: Awaitable[object]) -> tuple[grpc.StatusCode, str]:
    """Return how a call fails."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details() or ""


async def test_unary_call(ground: GrpcGround, client: Client) -> None:
    """The message comes back; what is sent behind the end is dropped; metadata and the deadline have arrived."""
    metadata = (("x-one", "1"), ("x-twice", "a"), ("x-twice", "b"), ("x-raw-bin", b"\0\xff"))
    assert await ask(client, "Say", b"hello", metadata=metadata, timeout=30) == b"hello"
    (seen,) = ground.echo.metadata
    assert (seen["x-one"], seen["x-twice"], seen["x-raw-bin"]) == ("1", "a,b", "AP8")
    assert not [name for name in seen if name.startswith(":")]
    (remaining_ms,) = ground.echo.remaining_ms
    assert remaining_ms is not None
    assert 0 < remaining_ms <= 30_000
    assert await ask(client, "Say", b"") == b""
    assert ground.echo.remaining_ms[1] is None


async def test_deadline_of_sixty_years(ground: GrpcGround, client: Client) -> None:
    """Who waits for so long waits without end; no timer is set for it."""
    assert await ask(client, "Say", b"1", timeout=60 * 365 * 86_400) == b"1"
    assert ground.echo.remaining_ms == [None]


async def test_tls_and_plain_text_on_one_port(ground: GrpcGround, client: Client) -> None:
    """Both are served, at the same time; the pair is made once, and only its owner may read it."""
    path = ground.store / "config" / "self-signed.pem"
    assert await ask(client, "Say", b"plain") == b"plain"
    assert not path.exists()
    async with await ground.open_tls() as secure, asyncio.TaskGroup() as group:
        both = [(number, each) for number in range(50) for each in (secure, client)]
        tasks = [group.create_task(ask(each, "Say", b"%d" % number)) for number, each in both]
    assert [task.result() for task in tasks] == [b"%d" % (number // 2) for number in range(100)]
    assert path.stat().st_mode & 0o777 == 0o600


async def test_many_calls_in_flight(client: Client) -> None:
    """Sixty-four at a time on one connection: each has its own answer."""

    async def ask_often(worker: int) -> list[bytes]:
        return [await ask(client, "Say", b"%d-%d" % (worker, number)) for number in range(20)]

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ask_often(worker)) for worker in range(64)]
    assert [task.result() for task in tasks] == [[b"%d-%d" % (one, two) for two in range(20)] for one in range(64)]


async def test_stream_of_answers(client: Client) -> None:
    """A request of one message, an answer of many; of none, too."""
    repeat = client.unary_stream(f"{SERVICE}/Repeat")
    assert [message async for message in repeat(b"300")] == [b"%d" % number for number in range(300)]
    assert [message async for message in repeat(b"0")] == []


async def test_stream_of_requests(client: Client) -> None:
    """Messages go both ways for as long as the peer likes; the server ends when the peer has ended."""
    call = client.stream_stream(f"{SERVICE}/Talk")()
    for number in range(50):
        await call.write(b"%d" % number)
        assert await call.read() == b"%d" % number
    await call.done_writing()
    assert await call.code() is grpc.StatusCode.OK


@pytest.mark.parametrize("size", [65_536, 4 << 20, 40 << 20])
async def test_large_messages(client: Client, size: int) -> None:
    """Messages above both windows go up and down."""
    message = bytes(range(256)) * (size // 256)
    assert await ask(client, "Say", message) == message


async def test_messages_compressed_by_gzip(ground: GrpcGround, client: Client) -> None:
    """A client that compresses is understood, also on a stream."""
    message = b"again and again " * 10_000
    assert await ask(client, "Say", message, compression=grpc.Compression.Gzip) == message
    assert ground.echo.metadata[0]["grpc-encoding"] == "gzip"
    call = client.stream_stream(f"{SERVICE}/Talk")(compression=grpc.Compression.Gzip)
    await call.write(message)
    assert await call.read() == message
    await call.done_writing()
    assert await call.code() is grpc.StatusCode.OK


async def test_compression_that_is_not_read(client: Client) -> None:
    """A client that compresses otherwise is told what is read."""
    call = client.unary_unary(f"{SERVICE}/Say")(b"1" * 1000, compression=grpc.Compression.Deflate)
    code, text = await failure_of(call)
    assert (code, "deflate" in text) == (grpc.StatusCode.UNIMPLEMENTED, True)


async def test_bomb_of_gzip(client: Client) -> None:
    """A message that is small only while it is compressed is refused, and the next call is answered."""
    code, text = await failure_of(ask(client, "Say", bytes(32 << 20), compression=grpc.Compression.Gzip))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "more than 16777216" in text
    assert await ask(client, "Say", b"on") == b"on"


async def test_statuses_and_their_texts(client: Client) -> None:
    """What a method says comes out, whatever characters it is of; a method that is not there is told of."""
    text = 'näher: 100% "besser"\n→ 日本'
    assert await failure_of(ask(client, "Refuse", text.encode())) == (grpc.StatusCode.NOT_FOUND, text)
    code, text = await failure_of(ask(client, "Nothing", b""))
    assert (code, text) == (grpc.StatusCode.UNIMPLEMENTED, "there is no method /test.Echo/Nothing")


async def test_method_that_fails(ground: GrpcGround, client: Client, caplog: pytest.LogCaptureFixture) -> None:
    """Its call ends as INTERNAL, the log has the reason, what was held for it is given back, and no other call ends."""
    talk = client.stream_stream(f"{SERVICE}/Talk")()
    await talk.write(b"first")
    assert await talk.read() == b"first"
    code, text = await failure_of(ask(client, "Break", b"x"))
    assert (code, "log" in text) == (grpc.StatusCode.INTERNAL, True)
    assert ground.echo.over.is_set()
    broken = client.stream_stream(f"{SERVICE}/BreakTalk")()
    await broken.write(b"this")
    assert await broken.code() is grpc.StatusCode.INTERNAL
    await talk.write(b"second")
    assert await talk.read() == b"second"
    await talk.done_writing()
    assert "this method is broken" in caplog.text
    assert "cannot bear b'this'" in caplog.text
    assert "/test.Echo/Break from 127.0.0.1:" in caplog.text


async def test_call_that_is_cancelled(ground: GrpcGround, client: Client) -> None:
    """Its service hears of it, and what it still sends goes nowhere."""
    call = client.unary_unary(f"{SERVICE}/Hold")(b"1")
    asking = asyncio.ensure_future(call.code())  # noqa: TID251 # awaited below
    await ground.echo.has_come.wait()
    call.cancel()
    await ground.echo.over.wait()
    (held,) = ground.echo.held
    assert held.is_over
    held.send(b"late")
    held.finish()
    told: list[str] = []
    held.on_over(lambda: told.append("at once"))
    assert told == ["at once"]
    assert await asking is grpc.StatusCode.CANCELLED
    assert await ask(client, "Say", b"on") == b"on"


async def test_client_that_goes(ground: GrpcGround) -> None:
    """Its calls are over."""
    async with ground.open() as channel:
        call = channel.stream_stream(f"{SERVICE}/Talk")()
        await call.write(b"1")
        assert await call.read() == b"1"
    await ground.echo.over.wait()
    assert [held.is_over for held in ground.echo.held] == [True]


async def test_answer_that_comes_later(ground: GrpcGround, client: Client) -> None:
    """A call may be answered from anywhere on the loop, long after its request."""
    async with asyncio.TaskGroup() as group:
        answer = group.create_task(ask(client, "Hold", b"1"))
        await ground.echo.has_come.wait()
        (held,) = ground.echo.held
        assert not held.is_over
        held.send(b"later")
        held.finish()
    assert answer.result() == b"later"
    assert not ground.echo.over.is_set()


async def test_client_without_tls_that_is_not_ours(ground: GrpcGround) -> None:
    """A browser or a probe is told in plain words what it has reached, or is closed; the port goes on."""
    for first in (b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", b"\0\0\0\x10garbage", b"\x16\x03\x01\x00\x07garbage"):
        reader, writer = await asyncio.open_connection("127.0.0.1", ground.port)
        writer.write(first)
        await reader.read()
        writer.close()
        await writer.wait_closed()
    async with ground.open() as channel:
        assert await ask(channel, "Say", b"on") == b"on"
