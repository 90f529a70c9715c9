"""The frames of pulls of one queue, the short way: what never changes is encoded once.

The same frame as that of a ``Command`` with a ``PullHeader``; a test compares the two. ``spec/remoting.md`` §1.1, §1.2,
§4.4.
"""

from typing import Final

import msgspec

from ..codec.codes import VERSION, RequestCode
from ..codec.command import Command
from ..codec.frames import PREFIX
from .pull import PullHeader

_quote = msgspec.json.Encoder().encode
_CHANGING: Final = ("queueOffset", "maxMsgNums")
_PATTERN: Final = (
    b'{"code":%d,"extFields":%b,"queueOffset":"%%d","maxMsgNums":"%%d"},"flag":0,"language":"PYTHON","opaque":%%d,'
    b'"serializeTypeCurrentRPC":"JSON","version":%d}'
)


class PullFrames:
    """Makes the frames of pulls that differ in offset and number of messages only."""

    __slots__ = ("_pattern",)

    def __init__(self, header: PullHeader) -> None:
        fields = Command.request(RequestCode.PULL_MESSAGE, header).ext
        constant = _quote({name: value for name, value in fields.items() if name not in _CHANGING})
        self._pattern = _PATTERN % (RequestCode.PULL_MESSAGE, constant[:-1].replace(b"%", b"%%"), VERSION)

    def encode(self, queue_offset: int, max_messages: int, opaque: int) -> bytes:
        """Return the frame of a pull."""
        header = self._pattern % (queue_offset, max_messages, opaque)
        return PREFIX.pack(4 + len(header), len(header)) + header
