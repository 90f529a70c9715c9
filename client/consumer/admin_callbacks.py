"""What a consumer answers when a broker asks for an administrator (Java's ``ClientRemotingProcessor``).

    220  RESET_CONSUMER_CLIENT_OFFSET      its queues of a topic begin anew at other offsets; one-way
    221  GET_CONSUMER_STATUS_FROM_CLIENT   how far it has come in the queues of a topic
    307  GET_CONSUMER_RUNNING_INFO         settings, subscriptions, queues; stacks of threads and tasks if asked for
    309  CONSUME_MESSAGE_DIRECTLY          a listener gets one message out of turn, and how it ends is the answer

Other groups of the session answer for themselves. Java waits 10 s before it sets offsets, for listeners that run; here
what they finish later is ignored, since the offsets are frozen. Without a listener 309 is refused as Java refuses it,
as if the group were not there; Java's lite pull consumer passes over 220 and has nothing to say to 221, ours does both.
"""

import asyncio
import inspect
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import FrameType
from typing import Any, Protocol

from ...common.codes import ResponseCode
from ...common.errors import DecodeError
from ...common.message import MessageQueue, ReceivedMessage
from ...common.outcome import Outcome
from ...common.properties import RETRY_TOPIC
from ...common.record import decode_record
from ...common.record_messages import decode_message
from ...remoting.bodies.body import decode_answer, encode_body
from ...remoting.bodies.client import (
    ConsumedDirectly,
    ConsumerOffsets,
    OwnedQueue,
    ResetOffsets,
    RunningInfo,
    SubscriptionData,
    TopicFigures,
)
from ...remoting.codec.command import Command, decode_header
from ...remoting.codec.request_codes import RequestCode
from ...remoting.headers.client import ConsumeDirectlyHeader, GroupTopicHeader, RunningInfoHeader
from ...remoting.transport.connection import Connection, Reply
from ...remoting.transport.connection import Handler as RequestHandler
from ..group.group_member import GroupMember
from ..group.process_queue import ProcessQueue
from ..session.session import Session
from ..session.settings import ConsumerSettings
from ..tracing.statistics import Statistics

MIB = 1024 * 1024
CLIENT_VERSION = "rocketlet"


class AdminAnswers(Protocol):
    """In what the kinds of consumers differ."""

    def properties(self) -> Mapping[str, str]:
        """Return its settings by Java's names, beside those of all consumers."""
        ...

    def queues(self) -> Mapping[MessageQueue, OwnedQueue]:
        """Return what it tells of the queues that it owns."""
        ...

    async def begin_anew(self, offsets: Mapping[MessageQueue, int], /) -> None:
        """Go on elsewhere in those of the queues that it owns."""
        ...

    async def consume(self, message: ReceivedMessage, /) -> ConsumedDirectly | None:
        """Have its listener consume a message; None when it has no listeners."""
        ...


class ClientRequestHandlers:
    """The answers of one consumer."""

    def __init__(
        self, session: Session, member: GroupMember[Any], settings: ConsumerSettings, answers: AdminAnswers
    ) -> None:
        self._session = session
        self._member = member
        self._settings = settings
        self._answers = answers
        self._namespace = session.namespace
        self._started_at_ms = session.clock.now_ms()
        self.handlers: Mapping[int, RequestHandler] = {
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self._reset,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self._tell_offsets,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._describe,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume,
        }

    def __repr__(self) -> str:
        return f"<ClientRequestHandlers of {self._member.group}>"

    # 220, 221

    def _reset(self, command: Command, _connection: Connection) -> Reply:
        header = decode_header(GroupTopicHeader, command)
        if header.group != self._member.group:
            return None
        offsets = decode_answer(ResetOffsets, command.body).offset_table if command.body else {}
        offsets = {self._namespace.strip_queue(queue): queue_offset for queue, queue_offset in offsets.items()}
        wanted = {queue: queue_offset for queue, queue_offset in offsets.items() if queue.topic == header.topic}
        self._member.tasks.start(self._answers.begin_anew(wanted), name="reset offsets")
        return Command.response(ResponseCode.SUCCESS)

    def _tell_offsets(self, command: Command, _connection: Connection) -> Reply:
        header = decode_header(GroupTopicHeader, command)
        if header.group != self._member.group:
            return None
        offsets = {queue: at for queue, at in self._member.offsets.table.items() if queue.topic == header.topic}
        body = ConsumerOffsets(
            message_queue_table={self._namespace.wrap_queue(queue): at for queue, at in offsets.items()}
        )
        return Command.response(ResponseCode.SUCCESS, body=encode_body(body))

    # 307

    def _describe(self, command: Command, _connection: Connection) -> Reply:
        header = decode_header(RunningInfoHeader, command)
        if header.consumer_group != self._member.group:
            return None
        info = RunningInfo(
            properties=self._properties(),
            subscription_set=[
                SubscriptionData.from_subscription(each) for each in self._member.subscriptions.by_topic.values()
            ],
            status_table=self._figures(),
            mq_table={self._namespace.wrap_queue(queue): told for queue, told in self._answers.queues().items()},
            jstack=describe_stacks() if header.with_stacks else None,
        )
        return Command.response(ResponseCode.SUCCESS, body=encode_body(info))

    def _figures(self) -> dict[str, TopicFigures]:
        """Return the figures of each topic, which are 0 unless the consumer counts."""
        statistics, group = Statistics.among(self._settings.hooks), self._member.group
        return {
            self._namespace.wrap(topic): TopicFigures() if statistics is None else statistics.figures_of(group, topic)
            for topic in self._member.subscriptions.topics
        }

    def _properties(self) -> dict[str, str]:
        settings = self._settings
        return {
            "PROP_NAMESERVER_ADDR": "".join(f"{each};" for each in self._session.nameserver_addresses),
            "PROP_CLIENT_VERSION": CLIENT_VERSION,
            "PROP_CONSUMER_START_TIMESTAMP": str(self._started_at_ms),
            "consumerGroup": self._member.group,
            "consumeFromWhere": settings.consume_from.value,
            "pullBatchSize": str(settings.pull_messages),
            **self._answers.properties(),
        }

    # 309

    def _consume(self, command: Command, _connection: Connection) -> Reply:
        header = decode_header(ConsumeDirectlyHeader, command)
        if header.consumer_group != self._member.group:
            return None
        try:
            message = decode_message(decode_record(command.body), header.broker_name or "")
        except DecodeError as error:
            return Command.response(ResponseCode.SYSTEM_ERROR, f"the message cannot be read: {error}")
        owed: Outcome[Command] = Outcome()
        self._member.tasks.start(self._consume_now(owed, message), name="consume directly")
        return owed

    async def _consume_now(self, owed: Outcome[Command], message: ReceivedMessage) -> None:
        told = await self._answers.consume(self._as_listeners_see(message))
        if told is None:
            remark = f"The Consumer Group <{self._namespace.wrap(self._member.group)}> not exist in this consumer"
            owed.answer_with(Command.response(ResponseCode.SYSTEM_ERROR, remark))
        else:
            owed.answer_with(Command.response(ResponseCode.SUCCESS, body=encode_body(told)))

    def _as_listeners_see(self, message: ReceivedMessage) -> ReceivedMessage:
        message = replace(message, topic=message.properties.get(RETRY_TOPIC, message.topic))
        return self._namespace.strip_message(message)


def describe_buffered(held: ProcessQueue, committed: int | None) -> OwnedQueue:
    """Return what is known of a queue by what is held of it, and the offset to commit."""
    return OwnedQueue(
        commit_offset=-1 if committed is None else committed,
        cached_msg_min_offset=(held.next_offset or 0) if held else 0,
        cached_msg_max_offset=held.put_offset if held else 0,
        cached_msg_count=len(held),
        cached_msg_size=held.buffered_bytes // MIB,
    )


def describe_stacks() -> str:
    """Return where every thread and every task of this event loop is, as Java writes it; no file is read for it."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    lines: list[str] = []
    frames: dict[int, FrameType] = sys._current_frames()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] # documented
    for ident, frame in frames.items():
        lines.append(f"{names.get(ident, ident)}    TID: {ident} STATE: RUNNABLE")
        current: FrameType | None = frame
        while current is not None:
            lines.append(_line_of(current))
            current = current.f_back
    for task in sorted(asyncio.all_tasks(), key=lambda each: each.get_name()):
        lines.append(f"task {task.get_name()}")
        lines += [_line_of(frame) for frame in reversed(list(_frames_of(task.get_coro())))]
    return "\n".join((*lines, ""))


def _frames_of(waiting: object) -> Iterator[FrameType]:
    """Yield the frames of a coroutine and of those that it waits for; ``Task.get_stack`` has the first alone."""
    while inspect.iscoroutine(waiting):
        assert waiting.cr_frame is not None, "what is awaited has not ended"
        yield waiting.cr_frame
        waiting = waiting.cr_await


def _line_of(frame: FrameType) -> str:
    code = frame.f_code
    return f"    {code.co_qualname}({code.co_filename}:{frame.f_lineno})"
