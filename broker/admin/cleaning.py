"""Cleaning of a broker's store: the timed job and the requests of administrators.

306  CLEAN_EXPIRED_CONSUMEQUEUE   queues that have lost all records, but those of system topics
316  CLEAN_UNUSED_TOPIC           queues of topics that the broker does not have, but system topics and light queues
329  DELETE_EXPIRED_COMMITLOG     a round, and expired log files in the next ones at any hour

Rules (``CleanCommitLogService``, ``AdminBrokerProcessor``; behaviour.md D.1, store.md §8):

- The first round is a minute after the start, then one every ``cleanResourceInterval``.
- The store plans on the event loop; what waits for the disk runs in the broker's thread for files. One cleaning goes on
  at a time; another waits for its turn.
- 306 and 316 are answered when they are done, 329 at once, as Java does.
"""

import asyncio
from collections.abc import Awaitable, Callable, Container, Iterator
from concurrent.futures import Executor
from typing import TypeVar

from ...common.clock import Clock
from ...common.codes import ResponseCode
from ...common.names import is_system_topic
from ...common.outcome import Outcome
from ...remoting.codec.command import Command
from ...remoting.codec.error_replies import NO_ANSWER
from ...remoting.transport.connection import Connection
from ...remoting.transport.event_loop import TaskScope, repeat
from ...store.cleaner import Cleaner
from ...store.files.file_sync import SlowStep
from ..topic.topics import TopicTable

FIRST_ROUND_MS = 60_000
T = TypeVar("T")
_LIGHT_QUEUE_PREFIX = "%LMQ%"


class CleaningJob:
    """Runs the steps of cleaning where they belong."""

    def __init__(self, cleaner: Cleaner, worker: Executor, tasks: TaskScope, clock: Clock) -> None:
        self.cleaner = cleaner
        self._worker = worker
        self._tasks = tasks
        self._clock = clock
        self._turn = asyncio.Lock()
        self.period_ms = cleaner.period_ms

    @property
    def is_at_work(self) -> bool:
        """Whether a cleaning is under way."""
        return self._turn.locked()

    async def run(self) -> int:
        """Do one round; return the pause."""
        await self.do(self.cleaner.round())
        return self.period_ms

    async def do(self, steps: Iterator[SlowStep]) -> None:
        """Go through the steps, after those of a cleaning that is under way (raises ``OSError``)."""
        loop = asyncio.get_running_loop()
        async with self._turn:
            for step in steps:
                await loop.run_in_executor(self._worker, step.run)
                if step.pause_ms:
                    await self._clock.sleep(step.pause_ms)

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Return what some work that waits for the disk gives."""
        return await asyncio.get_running_loop().run_in_executor(self._worker, work)

    def start(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        """Begin a piece of work that nobody waits for here."""
        self._tasks.start(repeat(work, self._clock), name)


class CleaningHandlers:
    """Answers what administrators ask to be cleaned."""

    def __init__(self, job: CleaningJob, topics: TopicTable, own_system: Container[str]) -> None:
        self._job = job
        self._topics = topics
        self._own_system = own_system

    def delete_expired_log(self, _command: Command, _connection: Connection) -> Command:
        """Delete expired files of the log now."""
        self._job.cleaner.ask()
        if not self._job.is_at_work:
            self._job.start(self._round, "delete expired files")
        return Command.response(ResponseCode.SUCCESS)

    def clean_expired_queues(self, command: Command, _connection: Connection) -> Outcome[Command]:
        """Remove queues that have lost all records."""
        return self._answer(command, lambda: self._job.cleaner.expired_queues(self._is_system))

    def clean_unused_topics(self, command: Command, _connection: Connection) -> Outcome[Command]:
        """Remove the queues of topics that are not there."""
        return self._answer(command, lambda: self._job.cleaner.unused_topics(self._is_used))

    def _answer(self, command: Command, plan: Callable[[], Iterator[SlowStep]]) -> Outcome[Command]:
        outcome: Outcome[Command] = Outcome()

        async def clean() -> None:
            reply = Command.response(ResponseCode.SYSTEM_ERROR, NO_ANSWER)
            try:
                await self._job.do(plan())
                reply = Command.response(ResponseCode.SUCCESS)
            except OSError as error:
                reply = Command.response(ResponseCode.SYSTEM_ERROR, str(error))
            finally:
                outcome.answer_with(reply)

        self._job.start(clean, f"answer request {command.code}")
        return outcome

    async def _round(self) -> None:
        await self._job.run()

    def _is_system(self, topic: str) -> bool:
        return is_system_topic(topic) or topic in self._own_system

    def _is_used(self, topic: str) -> bool:
        return self._topics.get(topic) is not None or topic.startswith(_LIGHT_QUEUE_PREFIX) or self._is_system(topic)
