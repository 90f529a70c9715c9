"""Calls of ``grpc.aio``, as a peer that knows nothing of us, over the port of a broker."""

import asyncio
import pathlib
from collections.abc import AsyncGenerator

import grpc.aio
import pytest
from grpc_ground import GrpcGround, ask, serving_grpc

LARGE = {"grpc.max_receive_message_length": -1, "grpc.max_send_message_length": -1}


@pytest.fixture
async def ground(tmp_path: pathlib.Path) -> AsyncGenerator[GrpcGround]:
    """Serve a port."""
    async with serving_grpc(tmp_path / "store") as served:
        yield served


@pytest.fixture
async def client(ground: GrpcGround) -> AsyncGenerator[grpc.aio.Channel]:
    """Return a client in plain text."""
    async with ground.open(**LARGE) as channel:
        yield channel


async def test_unary_call(ground: GrpcGround, client: grpc.aio.Channel) -> None:
    """The message comes back; what is sent behind the end is dropped; metadata and the deadline have arrived."""
    metadata = (("x-one", "1"), ("x-twice", "a"), ("x-twice", "b"), ("x-raw-bin", b"\0\xff"))
    assert await ask(client, "Say", b"hello", metadata=metadata, timeout=30) == b"hello"
    (seen,) = ground.echo.metadata
    assert (seen["x-one"], seen["x-twice"], seen["x-raw-bin"]) == ("1", "a,b", "AP8")
    assert not [name for name in seen if name.startswith(":")]
    (remaining_ms,) = ground.echo.remaining_ms
    assert remaining_ms is not None
    assert 0 < remaining_ms <= 30_000
    assert await ask(client, "Say") == b""
    assert ground.echo.remaining_ms[1] is None


async def test_tls_and_plain_text_on_one_port(ground: GrpcGround, client: grpc.aio.Channel) -> None:
    """Both are served, at the same time; the pair is made once, and only its owner may read it."""
    path = ground.store / "config" / "self-signed.pem"
    assert await ask(client, "Say", b"plain") == b"plain"
    assert not path.exists()
    async with await ground.open_tls() as secure:
        answers = [ask(each, "Say", b"%d" % number) for number in range(50) for each in (secure, client)]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(answer) for answer in answers]
    assert [task.result() for task in tasks] == [b"%d" % (number // 2) for number in range(100)]
    assert path.stat().st_mode & 0o777 == 0o600
