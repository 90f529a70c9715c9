"""Frames as the official Java client sends them, made once and given a new correlation id each time."""

import itertools
from collections.abc import Iterator

from rocketlet.common.record import BatchPart, encode_batch
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.frames import encode_command
from rocketlet.remoting.codec.request_codes import RequestCode

_FIRST_OPAQUE = 100_000_000
_OPAQUE_TEXT = str(_FIRST_OPAQUE).encode()


def send_fields(topic: str, queue_id: int, *, is_batch: bool = False) -> dict[str, str]:
    """Return the header of a send with tag, key and unique key."""
    unique_key = "7F000001" + "0" * 16 + f"{queue_id:08X}"
    return {
        "a": "bench-producer",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue_id),
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": f"UNIQ_KEY\x01{unique_key}\x02WAIT\x01true\x02TAGS\x01TagA\x02KEYS\x01key-{queue_id}\x02",
        "j": "0",
        "k": "false",
        "m": "true" if is_batch else "false",
        "n": "broker-a",
    }


def batch_body(count: int, body: bytes) -> bytes:
    """Return the body of a batch of equal messages."""
    properties = b"WAIT\x01true\x02TAGS\x01TagA\x02UNIQ_KEY\x017F000001000000000000000000000001\x02"
    return encode_batch([BatchPart(0, body, properties)] * count)


def sends(topic: str, queues: int, body: bytes) -> Iterator[bytes]:
    """Return endless sends, spread over the queues in turn."""
    requests = [Command.request(RequestCode.SEND_MESSAGE_V2, send_fields(topic, q), body) for q in range(queues)]
    return numbered(requests)


def batches(topic: str, queues: int, body: bytes) -> Iterator[bytes]:
    """Return endless batch sends of an already encoded batch body."""
    fields = [send_fields(topic, queue_id, is_batch=True) for queue_id in range(queues)]
    return numbered([Command.request(RequestCode.SEND_BATCH_MESSAGE, field, body) for field in fields])


def numbered(requests: list[Command]) -> Iterator[bytes]:
    """Yield the frames of the requests in turn, each with the next correlation id."""
    halves = [_split(request) for request in requests]
    for number, (head, tail) in zip(itertools.count(_FIRST_OPAQUE), itertools.cycle(halves), strict=False):
        yield head + str(number).encode() + tail


def _split(request: Command) -> tuple[bytes, bytes]:
    request.opaque = _FIRST_OPAQUE
    head, tail = encode_command(request).split(_OPAQUE_TEXT, 1)
    return head, tail


def pulls(topic: str, queues: int, messages_per_queue: int, per_pull: int) -> Iterator[bytes]:
    """Return the pulls that read a backlog once, queue by queue in turn; each asks for its own subscription."""
    requests = [
        Command.request(RequestCode.PULL_MESSAGE, _pull_fields(topic, queue_id, offset, per_pull))
        for offset in range(0, messages_per_queue, per_pull)
        for queue_id in range(queues)
    ]
    return numbered(requests)


def held_pulls(topic: str, queues: int) -> Iterator[bytes]:
    """Return endless pulls that wait at empty queues, for an hour."""
    waits = {"sysFlag": "6", "suspendTimeoutMillis": "3600000"}
    requests = [
        Command.request(RequestCode.PULL_MESSAGE, _pull_fields(topic, queue_id, 0, 32) | waits)
        for queue_id in range(queues)
    ]
    return numbered(requests)


def _pull_fields(topic: str, queue_id: int, offset: int, count: int) -> dict[str, str]:
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
