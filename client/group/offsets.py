"""Where the offsets of a group are stored, and where it begins without: at the brokers, or in a local file.

    persist           UPDATE_CONSUMER_OFFSET, one-way, to the master; at closing with an answer
    start             what the broker has stored; else by the rule of the group:

    from        nothing stored (Java's ``RebalancePushImpl.computePullFromWhere``)
    LAST        the end of the queue; of a retry topic the beginning
    FIRST       0 (the broker corrects it when the queue begins later)
    TIMESTAMP   the first message stored at that time or later; of a retry topic the end

"Stored" includes the answer 0 that a broker gives to a new group of a young topic.

A broadcasting consumer keeps its offsets in a file of its own (Java's ``LocalFileOffsetStore``):

    <directory>/<host>@<instance>/<group>/offsets.json        {"offsetTable":{<queue>:<offset>, …}}
                                          offsets.json.bak    the file before
                                          offsets.json.tmp    one that is being written

A queue is a JSON object, as a key too. The directory is ``~/.rocketmq_offsets``, the instance DEFAULT unless set: a
restarted consumer finds its file, and a Java consumer on the same host does too. So two members of a group on one host
need different instance names; what one writes keeps the other's queues, but both have the same queues. A file that
cannot be read gives way to the one before; if that cannot be read either, the consumer does not start.
"""

import asyncio
import logging
import pathlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import msgspec

from ...common.clock import Clock
from ...common.errors import ClientError, ConfigError, JsonError, RemotingError
from ...common.java_json import read_json_as, write_json
from ...common.message import MessageQueue
from ...common.names import RETRY_PREFIX
from ..session.interceptors import Namespace
from ..session.settings import ConsumeFrom
from .broker_requests import BrokerRequests
from .process_queue import QueueOffsets

_log = logging.getLogger(__name__)

HALF_HOUR_MS = 30 * 60_000

Store = Callable[[str, MessageQueue, int], Awaitable[None]]


class StartRule(NamedTuple):
    """Where a group begins in a queue that it has no offset for; ``at_ms`` counts for TIMESTAMP only."""

    consume_from: ConsumeFrom
    at_ms: int


def start_rule(consume_from: ConsumeFrom, at_ms: int | None, now_ms: int) -> StartRule:
    """Return the rule of a group; the instant is half an hour ago unless it is given, as in Java."""
    return StartRule(consume_from, now_ms - HALF_HOUR_MS if at_ms is None else at_ms)


class GroupOffsets:
    """The offsets of one group, kept here and stored at the brokers (Java's ``RemoteBrokerOffsetStore``)."""

    def __init__(self, group: str, brokers: BrokerRequests, rule: StartRule) -> None:
        self.table = QueueOffsets()
        self._group = group
        self._brokers = brokers
        self._rule = rule

    def __repr__(self) -> str:
        return f"<GroupOffsets {self._group} {self.table!r}>"

    async def find_start(self, queue: MessageQueue) -> int:
        """Return where to begin: what is stored, else by the rule.

        Raises:
            RemotingError: a broker did not answer in time.
            ClientError: a broker is not known, or answered with an error.
        """
        stored = await self._read(queue)
        if stored is not None and stored >= 0:
            return stored
        is_retry = queue.topic.startswith(RETRY_PREFIX)
        if self._rule.consume_from is ConsumeFrom.FIRST:
            return 0
        if self._rule.consume_from is ConsumeFrom.LAST:
            return 0 if is_retry else await self._brokers.end_offset(queue)
        return await (self._brokers.end_offset(queue) if is_retry else self._brokers.offset_at(queue, self._rule.at_ms))

    async def _read(self, queue: MessageQueue) -> int | None:
        return await self._brokers.stored_offset(self._group, queue)

    async def persist(self, queues: Iterable[MessageQueue]) -> None:
        """Store offsets without waiting for answers; what does not arrive is stored the next time."""
        await self._store(self._brokers.store_offset_oneway, queues)

    async def persist_now(self, queues: Iterable[MessageQueue]) -> None:
        """Store offsets and wait until the brokers have them."""
        await self._store(self._brokers.store_offset, queues)

    async def persist_at_end(self, queues: Iterable[MessageQueue], clock: Clock, timeout_ms: int) -> None:
        """Store offsets and wait until the brokers have them, or until the time is over."""
        try:
            async with clock.timeout(timeout_ms):
                await self.persist_now(queues)
        except TimeoutError:
            _log.warning(
                "group %s: closing before all offsets are committed, some messages will be consumed again", self._group
            )

    async def _store(self, store: Store, queues: Iterable[MessageQueue]) -> None:
        for queue in queues:
            queue_offset = self.table.get(queue)
            if queue_offset is None:
                continue
            try:
                await store(self._group, queue, queue_offset)
            except (RemotingError, ClientError) as error:
                _log.warning("group %s: committing offset %d of %s failed: %s", self._group, queue_offset, queue, error)


T = TypeVar("T")

NO_NAMESPACE = Namespace("")
DEFAULT_INSTANCE = "DEFAULT"
DEFAULT_DIRECTORY = "~/.rocketmq_offsets"


class _StoredOffsets(msgspec.Struct, rename="camel"):
    offset_table: dict[MessageQueue, int] = msgspec.field(default_factory=dict[MessageQueue, int])


class LocalOffsetFile:
    """The file of one group of one client, with names as brokers know them; every call may wait for the disk."""

    def __init__(self, path: pathlib.Path, namespace: Namespace = NO_NAMESPACE) -> None:
        self.path = path
        self._namespace = namespace
        self._backup = path.with_name(f"{path.name}.bak")

    def __repr__(self) -> str:
        return f"<LocalOffsetFile {self.path}>"

    def read(self) -> dict[MessageQueue, int]:
        """Return what is stored.

        Raises:
            ConfigError: there are files, and none can be read.
        """
        return {self._namespace.strip_queue(queue): queue_offset for queue, queue_offset in self._read().items()}

    def _read(self) -> dict[MessageQueue, int]:
        try:
            return self._parse(self.path) or self._parse(self._backup) or {}
        except (JsonError, UnicodeError) as error:
            _log.warning("%s cannot be read, using its .bak: %s", self.path, error)
        try:
            stored = self._parse(self._backup)
        except (JsonError, UnicodeError) as error:
            raise ConfigError(f"{self._backup} cannot be read: {error}; remove it to start anew") from error
        if stored is None:
            raise ConfigError(f"{self.path} cannot be read and has no .bak; remove it to start anew")
        return stored

    def write(self, offsets: dict[MessageQueue, int]) -> None:
        """Store offsets; those of other queues stay (raises ``OSError``)."""
        wrapped = {self._namespace.wrap_queue(queue): queue_offset for queue, queue_offset in offsets.items()}
        text = format_offsets(self._read() | wrapped)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_name(f"{self.path.name}.tmp")
        fresh.write_bytes(text)
        if self.path.exists() and self.path.stat().st_size:
            self.path.replace(self._backup)
        fresh.replace(self.path)

    @staticmethod
    def _parse(path: pathlib.Path) -> dict[MessageQueue, int] | None:
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            return None
        return read_json_as(text, _StoredOffsets).offset_table if text.strip() else None


def format_offsets(offsets: dict[MessageQueue, int]) -> bytes:
    """Return the text of a file, a queue in each line."""
    lines = [b"\t\t%b:%d" % (write_json(queue), offsets[queue]) for queue in sorted(offsets)]
    return b'{\n\t"offsetTable":{\n%b\n\t}\n}' % b",\n".join(lines)


def offset_file_of(
    directory: str | None, client: Iterable[str], group: str, namespace: Namespace = NO_NAMESPACE
) -> LocalOffsetFile:
    """Return the file of a group; ``client`` holds the parts of the client's id."""
    root = pathlib.Path(directory or DEFAULT_DIRECTORY).expanduser()
    folder = namespace.wrap(group)
    return LocalOffsetFile(root / "@".join(filter(None, client)) / folder / "offsets.json", namespace)


class LocalOffsets(GroupOffsets):
    """The offsets of one broadcasting consumer, kept here and stored in its file."""

    def __init__(self, group: str, brokers: BrokerRequests, rule: StartRule, file: LocalOffsetFile) -> None:
        super().__init__(group, brokers, rule)
        self._file = file
        self._stored: dict[MessageQueue, int] | None = None

    async def load(self) -> Mapping[MessageQueue, int]:
        """Read the file, the first time; return what was stored last.

        Raises:
            ConfigError: it cannot be read.
        """
        if self._stored is None:
            self._stored = await _in_thread(self._file.read)
        return self._stored

    async def _read(self, queue: MessageQueue) -> int | None:
        return (await self.load()).get(queue)

    async def persist(self, queues: Iterable[MessageQueue]) -> None:
        """Store the offsets that have changed."""
        stored = self._stored or {}
        offsets = {queue: queue_offset for queue in queues if (queue_offset := self.table.get(queue)) is not None}
        if all(stored.get(queue) == queue_offset for queue, queue_offset in offsets.items()):
            return
        try:
            await _in_thread(lambda: self._file.write(offsets))
        except (OSError, ConfigError) as error:
            _log.warning("group %s: saving %d offsets to a file failed: %s", self._group, len(offsets), error)
        else:
            self._stored = stored | offsets

    async def persist_now(self, queues: Iterable[MessageQueue]) -> None:
        """Store the offsets that have changed."""
        await self.persist(queues)


async def _in_thread(work: Callable[[], T]) -> T:
    """Do what may wait for the disk in a thread that ends with it."""
    threads = ThreadPoolExecutor(1, thread_name_prefix="rocketlet-offsets")
    try:
        return await asyncio.get_running_loop().run_in_executor(threads, work)
    finally:
        threads.shutdown(wait=False)
