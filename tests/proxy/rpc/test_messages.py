"""Messages in bodies: cut anywhere, compressed, too long, damaged."""

import contextlib
import gzip
import zlib

import pytest
from grpc_peer import message
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common.errors import GrpcMessageError
from rocketlet.proxy.rpc.call import GrpcStatus
from rocketlet.proxy.rpc.messages import MessageLimits, MessageReader, encode_message, inflate

LIMITS = MessageLimits(max_message_bytes=1_000, max_inflated_bytes=500)
MESSAGES = [b"", b"one", bytes(600), b"", b"last"]
BODY = b"".join(map(encode_message, MESSAGES))


@pytest.mark.parametrize("size", [*range(1, 12), 100, len(BODY)])
def test_pieces_of_any_size(size: int) -> None:
    """The same messages come out, whole or in pieces, and nothing is kept behind the last."""
    reader = MessageReader(LIMITS)
    read = [one for at in range(0, len(BODY), size) for one in reader.feed(BODY[at : at + size])]
    assert (read, reader.pending_bytes) == (MESSAGES, 0)
    assert all(type(one) is bytes for one in read)


@pytest.mark.parametrize("length", range(1, len(BODY), 37))
def test_body_that_ends_early(length: int) -> None:
    """What is left of a message that is not complete is told."""
    reader = MessageReader(LIMITS)
    read = reader.feed(BODY[:length])
    assert b"".join(map(encode_message, read)) == BODY[: length - reader.pending_bytes]


@given(st.lists(st.binary(max_size=60), max_size=9), st.data())
def test_cuts_make_no_difference(messages: list[bytes], draw: st.DataObject) -> None:
    """Whatever the messages are, and wherever their bytes are cut."""
    body = b"".join(map(encode_message, messages))
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(body)), max_size=9)))
    reader = MessageReader(LIMITS)
    pieces = [body[start:end] for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    assert [one for piece in pieces for one in reader.feed(piece)] == messages


@given(st.lists(st.binary(max_size=30), max_size=9), st.booleans())
def test_any_bytes(pieces: list[bytes], is_gzip: bool) -> None:
    """They are messages or one error, and little is kept."""
    reader = MessageReader(LIMITS, b"gzip" if is_gzip else b"identity")
    with contextlib.suppress(GrpcMessageError):
        for piece in pieces:
            reader.feed(piece)
            assert reader.pending_bytes <= LIMITS.max_message_bytes + 5


def test_message_above_the_limit() -> None:
    """It is refused by its first bytes, before it has come."""
    with pytest.raises(GrpcMessageError, match="a message is 1001 bytes, limit is 1000") as caught:
        MessageReader(LIMITS).feed(message(bytes(1_001))[:5])
    assert caught.value.status == GrpcStatus.RESOURCE_EXHAUSTED
    assert MessageReader(LIMITS).feed(message(bytes(1_000))) == [bytes(1_000)]


def test_flags() -> None:
    """A message is compressed if it says so, and only where the headers have named how."""
    body = message(gzip.compress(b"one", mtime=0), 1) + message(b"two")
    assert MessageReader(LIMITS, b"gzip").feed(body) == [b"one", b"two"]
    for reader, flag in ((MessageReader(LIMITS), 1), (MessageReader(LIMITS, b"gzip"), 2)):
        with pytest.raises(GrpcMessageError, match=f"the flag {flag}"):
            reader.feed(message(gzip.compress(b"one", mtime=0), flag))


@pytest.mark.parametrize(
    ("compressed", "match"),
    [
        (b"", "too early"),
        (b"no gzip", "cannot be decompressed"),
        (gzip.compress(b"one", mtime=0)[:-1], "too early"),
        (gzip.compress(b"one", mtime=0)[:-8] + bytes(8), "cannot be decompressed"),
        (gzip.compress(b"one", mtime=0) + gzip.compress(b"two", mtime=0), "too late"),
        (zlib.compress(b"one"), "cannot be decompressed"),
    ],
)
def test_damaged_compression(compressed: bytes, match: str) -> None:
    """It is an error of the peer, whatever the damage."""
    with pytest.raises(GrpcMessageError, match=match) as caught:
        inflate(compressed, 500)
    assert caught.value.status == GrpcStatus.INTERNAL


def test_bombs() -> None:
    """No more than the limit is inflated, however much would come."""
    assert inflate(gzip.compress(bytes(500)), 500) == bytes(500)
    with pytest.raises(GrpcMessageError, match="more than 500 when it is decompressed") as caught:
        inflate(gzip.compress(bytes(501)), 500)
    assert caught.value.status == GrpcStatus.RESOURCE_EXHAUSTED
