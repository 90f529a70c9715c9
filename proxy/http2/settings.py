"""The settings that each end tells the other: ours from the limits, the peer's as far as they concern a server."""

from __future__ import annotations

import struct
from enum import IntEnum

from ...common.errors import Http2Error
from .frames import (
    LEAST_FRAME_LIMIT,
    MAX_WINDOW,
    MOST_FRAME_LIMIT,
    FrameType,
    Http2Code,
    encode_frame,
    encode_window_update,
)
from .limits import DEFAULT_WINDOW, Http2Limits

_ENTRY = struct.Struct(">HI")


class Setting(IntEnum):
    """A setting; others are ignored."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class PeerSettings:
    """What the peer has told so far.

    Its header table is not asked for: our headers never use one. Nor are its limits of pushes and of header lists.
    """

    __slots__ = ("max_frame_bytes", "window_bytes")

    def __init__(self) -> None:
        self.window_bytes = DEFAULT_WINDOW
        self.max_frame_bytes = LEAST_FRAME_LIMIT

    def __repr__(self) -> str:
        return f"<PeerSettings windows of {self.window_bytes}, frames of {self.max_frame_bytes}>"

    def apply(self, payload: bytes) -> int:
        """Take over a SETTINGS frame; return by how much the windows of its streams change.

        Raises:
            Http2Error: it is damaged, or a value may not be.
        """
        if len(payload) % _ENTRY.size:
            raise Http2Error(f"settings are {len(payload)} bytes, not a multiple of 6", Http2Code.FRAME_SIZE_ERROR)
        before = self.window_bytes
        for name, value in _ENTRY.iter_unpack(payload):
            if name == Setting.INITIAL_WINDOW_SIZE:
                if value > MAX_WINDOW:
                    raise Http2Error(f"window is {value}, limit is {MAX_WINDOW}", Http2Code.FLOW_CONTROL_ERROR)
                self.window_bytes = value
            elif name == Setting.MAX_FRAME_SIZE:
                if not LEAST_FRAME_LIMIT <= value <= MOST_FRAME_LIMIT:
                    text = f"frame limit is {value}, not {LEAST_FRAME_LIMIT} to {MOST_FRAME_LIMIT}"
                    raise Http2Error(text, Http2Code.PROTOCOL_ERROR)
                self.max_frame_bytes = value
            elif name == Setting.ENABLE_PUSH and value > 1:
                raise Http2Error(f"the setting for pushes is {value}, not 0 or 1", Http2Code.PROTOCOL_ERROR)
        return self.window_bytes - before


def encode_own_settings(limits: Http2Limits) -> bytes:
    """Return the frames that tell a peer our limits."""
    entries = {
        Setting.MAX_CONCURRENT_STREAMS: limits.max_streams,
        Setting.INITIAL_WINDOW_SIZE: limits.stream_window_bytes,
        Setting.MAX_FRAME_SIZE: limits.max_frame_bytes,
        Setting.MAX_HEADER_LIST_SIZE: limits.max_header_list_bytes,
    }
    payload = b"".join(_ENTRY.pack(name, value) for name, value in entries.items())
    frames = encode_frame(FrameType.SETTINGS, 0, 0, payload)
    more = limits.connection_window_bytes - DEFAULT_WINDOW
    return frames + encode_window_update(0, more) if more else frames
