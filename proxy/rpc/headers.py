"""What the headers of gRPC say: whether a request is a call, how long its caller waits; and those of our answers.

    fault of a request                  answer
    not POST                            405, in plain text
    content-type is not gRPC's          415, in plain text
    no ``te: trailers``                 400, in plain text: something on the way would lose the status of the call
    grpc-timeout that is none           INTERNAL
    grpc-encoding that is not read      UNIMPLEMENTED, with those that are

Source: "gRPC over HTTP/2", the protocol's description.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote

from ...common.errors import GrpcMessageError
from ..http2.compiled import codecs
from ..http2.events import RequestStarted
from .call import GrpcStatus

ENDLESS_MS = 30 * 86_400_000
"""Who waits for so long, and clients say 60 years, waits without end."""
MAX_TEXT = 1024
"""Characters of a status that are sent; the log has the rest."""

HeaderTuple = tuple[tuple[bytes, bytes], ...]
ANSWER: HeaderTuple = (
    (b":status", b"200"),
    (b"content-type", b"application/grpc"),
    (b"grpc-accept-encoding", b"identity,gzip"),
)
OK_TRAILERS: HeaderTuple = ((b"grpc-status", b"0"),)
_CONTENT_TYPE = b"application/grpc"
_LONGER_CONTENT_TYPES = (b"application/grpc+", b"application/grpc;")
_MOST_DIGITS = 8
_NANOSECONDS = {
    b"H": 3_600_000_000_000,
    b"M": 60_000_000_000,
    b"S": 1_000_000_000,
    b"m": 1_000_000,
    b"u": 1_000,
    b"n": 1,
}
_PRINTABLE = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")


class NoCall(NamedTuple):
    """Why a request is none of gRPC, for whoever reads it in a browser or the log of a proxy."""

    http_status: int
    text: str

    def headers(self) -> HeaderTuple:
        """Return the headers of the answer."""
        content = (b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(self.body()))
        allow = ((b"allow", b"POST"),) if self.http_status == 405 else ()
        return (b":status", b"%d" % self.http_status), *content, *allow

    def body(self) -> bytes:
        """Return its text."""
        return f"this port serves gRPC: {self.text}\n".encode()


NOT_POST = NoCall(405, "the method is not POST")
WRONG_CONTENT = NoCall(415, "the content-type is not application/grpc")
NO_TRAILERS = NoCall(400, "there is no header te: trailers")


def find_fault(fields: Mapping[bytes, bytes]) -> NoCall | None:
    """Return why a request is no call, if it is none."""
    if fields[b":method"] != b"POST":
        return NOT_POST
    content_type = fields.get(b"content-type", b"")
    if content_type != _CONTENT_TYPE and not content_type.startswith(_LONGER_CONTENT_TYPES):
        return WRONG_CONTENT
    return None if b"te" in fields else NO_TRAILERS


def parse_timeout(text: bytes) -> int | None:
    """Return how many milliseconds a caller waits, None for without end.

    Raises:
        GrpcMessageError: it is no time.
    """
    if codecs is not None and (timeout_ms := codecs.read_timeout(text)) >= 0:
        return timeout_ms
    number, unit_ns = text[:-1], _NANOSECONDS.get(text[-1:])
    if unit_ns is None or not number.isdigit() or len(number) > _MOST_DIGITS:
        raise GrpcMessageError(f"grpc-timeout is {text[:40]!r}", GrpcStatus.INTERNAL)
    timeout_ms = -(-int(number) * unit_ns // 1_000_000)
    return timeout_ms if timeout_ms < ENDLESS_MS else None


class CallMetadata(Mapping[str, str]):
    """The headers of a call without those of HTTP/2, made into texts one by one, as they are asked for.

    Values of one that came twice stand with a comma between them.
    """

    __slots__ = ("_fields", "_headers")

    def __init__(self, request: RequestStarted) -> None:
        self._headers = request.headers
        self._fields = request.fields

    def __getitem__(self, name: str) -> str:
        """Return the text of a header."""
        key = name.encode("latin-1", "replace")
        value = self._fields.get(key)
        if value is None or key[:1] == b":":
            raise KeyError(name)
        if len(self._fields) != len(self._headers):
            value = b",".join([value for other, value in self._headers if other == key])
        return value.decode(errors="replace")

    def get(self, name: str, default: Any = None) -> Any:
        """Return the text of a header, or what stands for one that is missing."""
        value = self._fields.get(name.encode("latin-1", "replace"))
        if value is None:
            return default
        if len(self._fields) != len(self._headers) or name[:1] == ":":
            return super().get(name, default)
        return value.decode(errors="replace")

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""
        return (name.decode("latin-1") for name in self._fields if name[:1] != b":")

    def __len__(self) -> int:
        """Return how many names there are."""
        return sum(1 for _ in self)


@lru_cache(maxsize=64)
def status_trailers(status: GrpcStatus, text: str) -> HeaderTuple:
    """Return the headers that end a call."""
    number = (b"grpc-status", b"%d" % status)
    if not text:
        return (number,)
    return number, (b"grpc-message", quote(text[:MAX_TEXT], safe=_PRINTABLE, errors="replace").encode())
