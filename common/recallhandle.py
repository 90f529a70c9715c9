"""Handles by which a producer recalls a timer message (``RecallMessageHandle``; remoting.md §4.3).

    v1 <topic> <broker name> <time> <unique key>     in the base64 of URLs, with padding

Rules of reading, which are Java's: padding may be left out, words behind the fifth are passed over, a broken character
becomes U+FFFD. The time is a word here; whether it is a number is judged by who needs it.
"""

import base64
import binascii
import re
from typing import Final, NamedTuple

from .errors import DecodeError

_VERSION: Final = "v1"
_ALPHABET: Final = re.compile(r"[A-Za-z0-9_-]+(={1,2})?")


class RecallHandle(NamedTuple):
    """Which message is meant: the broker that keeps it, when it is due, and its unique key."""

    topic: str
    broker_name: str
    due_at: str
    unique_key: str


def format_recall_handle(handle: RecallHandle) -> str:
    """Return the text that a producer gets."""
    return base64.urlsafe_b64encode(" ".join((_VERSION, *handle)).encode()).decode()


def parse_recall_handle(text: str) -> RecallHandle:
    """Return what a producer has sent back.

    Raises:
        DecodeError: It is no handle; the text is Java's.
    """
    padded = text if text.endswith("=") else text + "=" * (-len(text) % 4)
    try:
        if not _ALPHABET.fullmatch(text):
            raise DecodeError("recall handle is invalid")
        words = base64.urlsafe_b64decode(padded).decode("utf-8", "replace").rstrip(" ").split(" ")
    except binascii.Error as error:
        raise DecodeError("recall handle is invalid") from error
    if words[0] != _VERSION or len(words) < 5:
        raise DecodeError("recall handle is invalid")
    return RecallHandle(*words[1:5])
