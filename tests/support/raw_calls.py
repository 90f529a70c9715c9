"""Requests to a server as commands, without a client's rules, and recorded frames to send again."""

import asyncio
import gzip
import json
import pathlib
import ssl
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec

from rocketlet.common.message import PULL_SUBSCRIPTION, MessageQueue
from rocketlet.common.subscriptions.subscription import parse_tag_expression
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.frames import PREFIX, FrameParser
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.headers.pull import PullHeader
from rocketlet.remoting.headers.send import LetterSendHeader
from rocketlet.remoting.transport.client import ConnectionPool
from rocketlet.remoting.transport.connection import Connection, RequestHandlers
from rocketlet.remoting.transport.event_loop import LoopClock

TIMEOUT_MS = 60_000  # real time: a server that never answers must not stop the run
_clock = LoopClock()


def decode_json_header(text: bytes) -> Command:
    """Return the command of a frame that holds a JSON header and nothing else (raises ``FrameError``)."""
    [command] = FrameParser().feed(PREFIX.pack(4 + len(text), len(text)) + text)
    return command


class Caller:
    """One connection to a server; what the server asks is collected in ``requests``."""

    def __init__(self, connection: Connection, requests: asyncio.Queue[Command]) -> None:
        self.connection = connection
        self.requests = requests

    async def ask(
        self, code: int, header: msgspec.Struct | Mapping[str, str] | None = None, body: bytes = b"", **changes: Any
    ) -> Command:
        """Send a request and return its answer."""
        return await self.connection.request(_request(code, header, body, changes), TIMEOUT_MS)

    def ask_oneway(
        self, code: int, header: msgspec.Struct | Mapping[str, str] | None = None, body: bytes = b""
    ) -> None:
        """Send a request that is not answered."""
        self.connection.send_oneway(_request(code, header, body, {}))

    async def next_request(self) -> Command:
        """Return the next request of the server."""
        async with _clock.timeout(TIMEOUT_MS):
            return await self.requests.get()

    async def send(self, topic: str = "T", body: bytes = b"body", **fields: Any) -> Command:
        """Send one message."""
        return await self.ask(RequestCode.SEND_MESSAGE_V2, send_header(topic, **fields), body)

    async def pull(self, topic: str = "T", queue_offset: int = 0, **fields: Any) -> Command:
        """Pull with the subscription in the request."""
        return await self.ask(RequestCode.PULL_MESSAGE, pull_header(topic, queue_offset, **fields))

    async def heartbeat(self, client_id: str, group: str, topics: Mapping[str, str], **consumer: Any) -> Command:
        """Say that a consumer is alive; ``topics`` maps topics to tag expressions."""
        return await self.ask(RequestCode.HEART_BEAT, None, heartbeat_body(client_id, group, topics, **consumer))


class RecordedCall(NamedTuple):
    """A request that was recorded from an official client, and the official server's answer; none to a one-way one."""

    request: Command
    answer: Command | None
    server: str


@asynccontextmanager
async def open_caller(address: str, tls: ssl.SSLContext | None = None) -> AsyncGenerator[Caller]:
    """Connect to a server, in plain text unless told otherwise."""
    requests: asyncio.Queue[Command] = asyncio.Queue()

    def collect(command: Command, _connection: Connection) -> None:
        requests.put_nowait(command)

    async with ConnectionPool(_clock, RequestHandlers(fallback=collect), tls=tls) as pool:
        yield Caller(await pool.connect(address), requests)


async def until(is_so: Callable[[], bool]) -> None:
    """Let a thread or the kernel work until something is so."""
    async with _clock.timeout(TIMEOUT_MS):
        while not is_so():  # noqa: ASYNC110 # neither of them can set an event here
            await asyncio.sleep(0)


def send_header(topic: str, queue_id: int = 0, properties: str = "", **fields: Any) -> LetterSendHeader:
    """Return the header of an ordinary send."""
    values: dict[str, Any] = {
        "producer_group": "producers",
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "sys_flag": 0,
        "born_at_ms": 1_700_000_000_000,
        "flag": 0,
        **fields,
    }
    return LetterSendHeader(topic=topic, queue_id=queue_id, properties=properties, **values)


def topic_header(topic: str, queue_type: str) -> dict[str, str]:
    """Return the fields that make a topic of one queue of this type (``queue.type``)."""
    return {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": "1",
        "writeQueueNums": "1",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "order": "false",
        "attributes": f"+queue.type={queue_type}",
    }


def pull_header(topic: str, queue_offset: int = 0, **fields: Any) -> PullHeader:
    """Return the header of a pull that brings its subscription and does not wait."""
    values: dict[str, Any] = {
        "consumer_group": "consumers",
        "queue_id": 0,
        "max_messages": 32,
        "sys_flag": PULL_SUBSCRIPTION,
        "commit_offset": 0,
        "suspend_ms": 15_000,
        "subscription": "*",
        "sub_version": 0,
        **fields,
    }
    return PullHeader(topic=topic, queue_offset=queue_offset, **values)


def heartbeat_body(client_id: str, group: str, topics: Mapping[str, str], **consumer: Any) -> bytes:
    """Return the body of a consumer's heartbeat."""
    version = consumer.pop("version", 1)
    subscriptions = [_subscription(topic, expression, version) for topic, expression in topics.items()]
    data = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": subscriptions,
        **consumer,
    }
    return json.dumps({"clientID": client_id, "consumerDataSet": [data], "producerDataSet": []}).encode()


def lock_body(group: str, client_id: str, queues: list[MessageQueue]) -> bytes:
    """Return the body of a request to lock or unlock queues."""
    mq_set = [{"topic": queue.topic, "brokerName": queue.broker_name, "queueId": queue.queue_id} for queue in queues]
    return json.dumps({"consumerGroup": group, "clientId": client_id, "mqSet": mq_set}).encode()


def recorded_calls(vectors: pathlib.Path, scenario: str, folder: str = "frames") -> Iterator[RecordedCall]:
    """Yield the calls of a scenario of ``vectors`` that clients made and that were answered, or are one-way."""
    asked: dict[tuple[int, int], tuple[Command, str]] = {}
    for frame, command in _recorded_frames(vectors / folder, scenario):
        key = frame["conn"], command.opaque
        if frame["dir"] == "c2s" and command.is_oneway and not command.is_response:
            yield RecordedCall(command, None, frame["server"])
        elif frame["dir"] == "c2s" and not command.is_response:
            asked[key] = command, frame["server"]
        elif frame["dir"] == "s2c" and command.is_response and key in asked:
            request, server = asked.pop(key)
            yield RecordedCall(request, command, server)


def recorded_questions(vectors: pathlib.Path, scenario: str) -> Iterator[Command]:
    """Yield the requests of a scenario that servers made."""
    for frame, command in _recorded_frames(vectors / "frames", scenario):
        if frame["dir"] == "s2c" and not command.is_response:
            yield command


def _recorded_frames(folder: pathlib.Path, scenario: str) -> Iterator[tuple[dict[str, Any], Command]]:
    with gzip.open(folder / f"{scenario}.jsonl.gz", "rt") as lines:
        for frame in map(json.loads, lines):
            if "hex" in frame:  # and not the end of a connection
                (command,) = FrameParser().feed(bytes.fromhex(frame["hex"]))
                yield frame, command


def _request(
    code: int, header: msgspec.Struct | Mapping[str, str] | None, body: bytes, changes: Mapping[str, Any]
) -> Command:
    command = Command.request(code, header, body)
    for name, value in changes.items():
        setattr(command, name, value)
    return command


def _subscription(topic: str, expression: str, version: int) -> dict[str, Any]:
    parsed = parse_tag_expression(topic, expression)
    return {
        "topic": topic,
        "subString": expression,
        "tagsSet": sorted(parsed.tags),
        "codeSet": sorted(parsed.codes),
        "subVersion": version,
        "expressionType": "TAG",
    }
