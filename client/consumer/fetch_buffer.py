"""Messages that a pull consumer has pulled and not yet handed out.

    FetchBuffer        one owned queue: counts for the flow control, and its position
    BufferedMessages   all buffers of one consumer: answers of pulls in the order they came, to be handed out

The position of a queue is the offset of the next message to hand out. What was handed out last counts as unfinished
until more is asked for, so it is not committed before.
"""

import asyncio
from collections import deque
from typing import NamedTuple

from ...common.clock import Clock
from ...common.message import MessageQueue, ReceivedMessage
from ..group.process_queue import ProcessQueue
from ..session.settings import FlowLimits


class BufferedAnswer(NamedTuple):
    """What is left of one pull answer."""

    buffer: "FetchBuffer"
    messages: deque[ReceivedMessage]


class FetchBuffer:
    """The sink of the puller of one owned queue."""

    def __init__(self, queue: MessageQueue, limits: FlowLimits, buffered: "BufferedMessages", clock: Clock) -> None:
        self.queue = queue
        self.position: int | None = None
        self.is_paused = False
        self.is_dropped = False
        self._limits = limits
        self._buffered = buffered
        self.held = ProcessQueue()
        self.pulled_at_ms = self.handed_out_at_ms = clock.now_ms()
        self._clock = clock
        self._room = asyncio.Event()

    def __repr__(self) -> str:
        return f"<FetchBuffer {self.queue} at {self.position}, {len(self.held)} held>"

    @property
    def has_room(self) -> bool:
        """Whether the next pull may be made."""
        return not (self.is_paused or self.held.exceeds(self._limits) or self._buffered.is_full)

    def release(self, messages: list[ReceivedMessage]) -> None:
        """Let go of messages that are handed out, and move the position behind them."""
        self.held.remove(messages)
        self.handed_out_at_ms = self._clock.now_ms()
        self.move_to(messages[-1].queue_offset + 1)

    def restart(self, position: int) -> None:
        """Throw away what is held and go on elsewhere."""
        self._buffered.clear_out(self)
        self.held = ProcessQueue()
        self.move_to(position)

    def move_to(self, position: int) -> None:
        """Set the position."""
        self.position = position
        self._buffered.moved.add(self)

    def pause(self) -> None:
        """Neither pull nor hand out."""
        self.is_paused = True

    def resume(self) -> None:
        """Pull and hand out again."""
        self.is_paused = False
        self.make_room()

    def make_room(self) -> None:
        """Look again whether there is room."""
        if self.has_room:
            self._buffered.waiting.discard(self)
            self._room.set()

    # ``PullSink``

    def drop(self) -> None:
        """Throw away what is held: the queue was given up."""
        self.is_dropped = True
        self._buffered.clear_out(self)

    async def wait_for_room(self) -> int:
        """Return when more may be pulled: 0, since a pull consumer commits by its own requests only."""
        while not self.has_room:
            self._room.clear()
            self._buffered.waiting.add(self)
            await self._room.wait()
        return 0

    def accept(self, messages: list[ReceivedMessage], next_offset: int) -> None:
        """Keep messages until they are asked for."""
        self.pulled_at_ms = self._clock.now_ms()
        if messages:
            self.held.put(messages)
            self._buffered.add(BufferedAnswer(self, deque(messages)))
        elif not self.held:
            self.move_to(next_offset)  # what the filter left out need not be read again


class BufferedMessages:
    """What one pull consumer can hand out."""

    def __init__(self, max_messages: int) -> None:
        self.moved: set[FetchBuffer] = set()  # their position is newer than what is to be committed
        self.waiting: set[FetchBuffer] = set()  # they wait for room
        self._max_messages = max_messages
        self._messages = 0
        self._answers: deque[BufferedAnswer] = deque()
        self._arrived = asyncio.Event()
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<BufferedMessages {self._messages} messages of {len(self._answers)} pulls>"

    @property
    def is_full(self) -> bool:
        """Whether all pulling has to pause."""
        return self._messages > self._max_messages

    def add(self, answer: BufferedAnswer) -> None:
        """Put the messages of one pull behind the others."""
        self._messages += len(answer.messages)
        self._answers.append(answer)
        self._arrived.set()

    def take(self, at_most: int | None) -> list[ReceivedMessage]:
        """Hand out messages of the first pull whose queue is not paused: all of them, or at most a number."""
        index = self._first_index()
        if index is None:
            return []
        buffer, waiting = self._answers[index]
        count = len(waiting) if at_most is None else min(at_most, len(waiting))
        messages = [waiting.popleft() for _ in range(count)]
        if not waiting:
            del self._answers[index]
        self._messages -= count
        buffer.release(messages)
        self._make_room()
        return messages

    async def wait_available(self) -> None:
        """Return when there is something to hand out, or when the consumer is closed."""
        while self._first_index() is None and not self._is_closed:
            self._arrived.clear()
            await self._arrived.wait()

    def look_again(self) -> None:
        """Let who waits look again: a queue is no longer paused."""
        self._arrived.set()

    def clear_out(self, buffer: FetchBuffer) -> None:
        """Throw away what is there of one queue."""
        self._answers = deque(each for each in self._answers if each.buffer is not buffer)
        self._messages = sum(len(each.messages) for each in self._answers)
        self.moved.discard(buffer)
        self._make_room()

    def close(self) -> None:
        """End every wait."""
        self._is_closed = True
        self._arrived.set()

    def _first_index(self) -> int | None:
        return next((index for index, each in enumerate(self._answers) if not each.buffer.is_paused), None)

    def _make_room(self) -> None:
        for each in tuple(self.waiting):
            each.make_room()
