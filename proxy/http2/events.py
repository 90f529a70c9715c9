"""What a peer did, for who serves it.

A request begins with ``RequestStarted`` and ends, for the part of the peer, with the first event that ``ends``; it may
be cut short by ``RequestReset`` at any time, after which nothing that is sent for it goes out. ``ConnectionEnded`` is
the last event of its connection and stands for the end of all its requests.
"""

from __future__ import annotations

from msgspec import Struct

Headers = list[tuple[bytes, bytes]]


class RequestStarted(Struct, gc=False):
    """A request, with its headers; they are valid, the pseudo headers first.

    ``fields`` are the same by their names, of those that came twice the last. A ``body`` that came in one frame of the
    same read, as that of nearly every call does, is here, and ``ends`` the request.
    """

    stream_id: int
    headers: Headers
    fields: dict[bytes, bytes]
    ends: bool
    body: bytes = b""


class BodyReceived(Struct, frozen=True, gc=False):
    """A piece of a request's body; whoever takes one calls ``release`` when it is not kept any more."""

    stream_id: int
    data: bytes
    ends: bool


class TrailersReceived(Struct, frozen=True, gc=False):
    """The headers behind a request's body, with which it ends."""

    stream_id: int
    headers: Headers


class RequestReset(Struct, frozen=True, gc=False):
    """A request that is over before its answer was, by the peer or for a mistake of the peer."""

    stream_id: int
    code: int
    by_peer: bool


class PeerLeaving(Struct, frozen=True, gc=False):
    """The peer begins no new requests; those that are open go on."""

    code: int


class ConnectionEnded(Struct, frozen=True, gc=False):
    """The connection is over: for a mistake of the peer, which has been told, or since the peer has gone."""

    code: int
    text: str


Http2Event = RequestStarted | BodyReceived | TrailersReceived | RequestReset | PeerLeaving | ConnectionEnded
