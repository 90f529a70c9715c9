"""Frames as the official Java client sends them, made once and given a new number each time.

The number is the correlation id of the request and a part of the unique keys of its messages, so no two messages have
the same unless a run begins with a number that another has had.
"""

import itertools
from collections.abc import Iterable, Iterator
from typing import Final

from rocketlet.common.record import BatchPart, encode_batch
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.frames import encode_command
from rocketlet.remoting.codec.request_codes import RequestCode

FIRST_NUMBER: Final = 123_456_789  # digits that stand nowhere else in a frame
_NUMBER_TEXT: Final = str(FIRST_NUMBER).encode()


def unique_key(number: int, index: int = 0) -> str:
    """Return the unique key of a message: of the request with a number, and of so many messages before it there."""
    return f"7F000001000000000000{number:09d}{index:03X}"


def send_fields(topic: str, queue_id: int, *, is_batch: bool = False) -> dict[str, str]:
    """Return the header of a send with tag, key and unique key."""
    return {
        "a": "bench-producer",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue_id),
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": f"UNIQ_KEY\x01{unique_key(FIRST_NUMBER)}\x02WAIT\x01true\x02TAGS\x01TagA\x02KEYS\x01key-{queue_id}\x02",
        "j": "0",
        "k": "false",
        "m": "true" if is_batch else "false",
        "n": "broker-a",
    }


def batch_body(count: int, body: bytes) -> bytes:
    """Return the body of a batch of equal messages."""
    keys = [unique_key(FIRST_NUMBER, index).encode() for index in range(count)]
    texts = [b"WAIT\x01true\x02TAGS\x01TagA\x02UNIQ_KEY\x01" + key + b"\x02" for key in keys]
    return encode_batch([BatchPart(0, body, text) for text in texts])


def sends(topic: str, queues: int, body: bytes) -> Iterator[bytes]:
    """Return endless sends, spread over the queues in turn."""
    return sends_to([(topic, queue_id) for queue_id in range(queues)], body)


def sends_to(queues: Iterable[tuple[str, int]], body: bytes, first: int = FIRST_NUMBER) -> Iterator[bytes]:
    """Return endless sends to queues of any topics in turn, numbered from ``first`` on."""
    return numbered(
        [Command.request(RequestCode.SEND_MESSAGE_V2, send_fields(*queue), body) for queue in queues], first
    )


def batches(topic: str, queues: int, body: bytes, first: int = FIRST_NUMBER) -> Iterator[bytes]:
    """Return endless batch sends of an already encoded batch body, numbered from ``first`` on."""
    fields = [send_fields(topic, queue_id, is_batch=True) for queue_id in range(queues)]
    return numbered([Command.request(RequestCode.SEND_BATCH_MESSAGE, field, body) for field in fields], first)


def numbered(requests: Iterable[Command], first: int = FIRST_NUMBER) -> Iterator[bytes]:
    """Yield the frames of the requests in turn, each with the next number, which has nine digits."""
    frames = [_split(request) for request in requests]
    for number, parts in zip(itertools.count(first), itertools.cycle(frames), strict=False):
        yield str(number).encode().join(parts)


def _split(request: Command) -> list[bytes]:
    request.opaque = FIRST_NUMBER
    return encode_command(request).split(_NUMBER_TEXT)


def pulls(topic: str, queues: int, messages_per_queue: int, per_pull: int) -> Iterator[bytes]:
    """Return the pulls that read a backlog once, queue by queue in turn; each asks for its own subscription."""
    requests = [
        Command.request(RequestCode.PULL_MESSAGE, pull_fields(topic, queue_id, offset, per_pull))
        for offset in range(0, messages_per_queue, per_pull)
        for queue_id in range(queues)
    ]
    return numbered(requests)


def held_pulls(topic: str, queues: int) -> Iterator[bytes]:
    """Return endless pulls that wait at empty queues, for an hour."""
    return numbered([held_pull(topic, queue_id, 0) for queue_id in range(queues)])


def held_pull(topic: str, queue_id: int, offset: int) -> Command:
    """Return a pull that waits at the end of a queue, for an hour."""
    waits = {"sysFlag": "6", "suspendTimeoutMillis": "3600000"}
    return Command.request(RequestCode.PULL_MESSAGE, pull_fields(topic, queue_id, offset, 32) | waits)


def pull_fields(topic: str, queue_id: int, offset: int, count: int) -> dict[str, str]:
    """Return the header of a pull that does not wait."""
    return {
        "consumerGroup": "bench-consumer",
        "topic": topic,
        "queueId": str(queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": str(count),
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
