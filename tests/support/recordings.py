"""Recordings for tests: messages whose places and times are chosen, and the files that hold them."""

import pathlib
from collections.abc import Sequence
from dataclasses import replace

from received import received

from rocketlet.cli.traffic.recording import RecordedMessage, RecordingHead, RecordingReader, RecordingWriter
from rocketlet.common.message import ReceivedMessage

BEGUN_MS = 1_700_000_000_000


def stored(number: int, *, topic: str = "Old", queue_id: int = 0, after_ms: int = 0) -> ReceivedMessage:
    """Return a message with everything that an application can give it, stored so long after the beginning."""
    message = received(number, b"%d" % number, topic=topic, queue_id=queue_id)
    return replace(
        message,
        tags="paid",
        keys=("every", f"k{number}"),
        properties={"TAGS": "paid", "KEYS": f"every k{number}", "größe": "5 公斤", "UNIQ_KEY": f"{number:032X}"},
        flag=-number,
        born_at_ms=BEGUN_MS + after_ms - 1,
        stored_at_ms=BEGUN_MS + after_ms,
    )


def write_recording(path: pathlib.Path, messages: Sequence[ReceivedMessage]) -> pathlib.Path:
    """Write messages to a recording, and return its path."""
    topics = tuple(dict.fromkeys(message.queue.topic for message in messages))
    writer = RecordingWriter(str(path), RecordingHead(BEGUN_MS, topics), overwrites=True)
    for message in messages:
        writer.add(message)
    writer.close()
    return path


def read_recording(path: pathlib.Path) -> list[RecordedMessage]:
    """Return the messages of a recording."""
    with RecordingReader(str(path)) as reader:
        return [recorded.message for piece in reader.pieces() for recorded in piece]
