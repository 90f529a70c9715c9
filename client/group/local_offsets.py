"""Offsets of a broadcasting consumer, which keeps them in a file of its own (Java's ``LocalFileOffsetStore``).

    <directory>/<host>@<instance>/<group>/offsets.json        {"offsetTable":{<queue>:<offset>, …}}
                                          offsets.json.bak    the file before
                                          offsets.json.tmp    one that is being written

A queue is a JSON object, as a key too. The directory is ``~/.rocketmq_offsets``, the instance DEFAULT unless set: a
restarted consumer finds its file, and a Java consumer on the same host does too. So two members of a group on one host
need different instance names; what one writes keeps the other's queues, but both have the same queues.

A file that cannot be read gives way to the one before; if that cannot be read either, the consumer does not start.
"""

import asyncio
import logging
import pathlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import msgspec

from ...common.errors import ConfigError, JsonError
from ...common.java_json import read_json_as, write_json
from ...common.message import MessageQueue
from ..session.brokers import Brokers
from ..session.namespace import Namespace
from .offsets import GroupOffsets, StartRule

log = logging.getLogger(__name__)
T = TypeVar("T")

DEFAULT_INSTANCE = "DEFAULT"
DEFAULT_DIRECTORY = "~/.rocketmq_offsets"


class _StoredOffsets(msgspec.Struct, rename="camel"):
    offset_table: dict[MessageQueue, int] = msgspec.field(default_factory=dict[MessageQueue, int])


class OffsetFile:
    """The file of one group of one client, with names as brokers know them; every call may wait for the disk."""

    def __init__(self, path: pathlib.Path, namespace: Namespace | None = None) -> None:
        self.path = path
        self._namespace = namespace
        self._backup = path.with_name(f"{path.name}.bak")

    def __repr__(self) -> str:
        return f"<OffsetFile {self.path}>"

    def read(self) -> dict[MessageQueue, int]:
        """Return what is stored.

        Raises:
            ConfigError: there are files, and none can be read.
        """
        stored, namespace = self._read(), self._namespace
        if namespace is None:
            return stored
        return {namespace.strip_queue(queue): offset for queue, offset in stored.items()}

    def _read(self) -> dict[MessageQueue, int]:
        try:
            return self._parse(self.path) or self._parse(self._backup) or {}
        except (JsonError, UnicodeError) as error:
            log.warning("%s cannot be read, using its .bak: %s", self.path, error)
        try:
            stored = self._parse(self._backup)
        except (JsonError, UnicodeError) as error:
            raise ConfigError(f"{self._backup} cannot be read: {error}; remove it to start anew") from error
        if stored is None:
            raise ConfigError(f"{self.path} cannot be read and has no .bak; remove it to start anew")
        return stored

    def write(self, offsets: dict[MessageQueue, int]) -> None:
        """Store offsets; those of other queues stay (raises ``OSError``)."""
        namespace = self._namespace
        if namespace is not None:
            offsets = {namespace.wrap_queue(queue): offset for queue, offset in offsets.items()}
        text = format_offsets(self._read() | offsets)
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
    directory: str | None, client: Iterable[str], group: str, namespace: Namespace | None = None
) -> OffsetFile:
    """Return the file of a group; ``client`` holds the parts of the client's id."""
    root = pathlib.Path(directory or DEFAULT_DIRECTORY).expanduser()
    folder = group if namespace is None else namespace.wrap(group)
    return OffsetFile(root / "@".join(filter(None, client)) / folder / "offsets.json", namespace)


class LocalOffsets(GroupOffsets):
    """The offsets of one broadcasting consumer, kept here and stored in its file."""

    def __init__(self, group: str, brokers: Brokers, rule: StartRule, file: OffsetFile) -> None:
        super().__init__(group, brokers, rule)
        self._file = file
        self._stored: dict[MessageQueue, int] | None = None

    async def load(self) -> None:
        """Read the file; called again for each queue that is taken, it does nothing.

        Raises:
            ConfigError: it cannot be read.
        """
        if self._stored is None:
            self._stored = await _in_thread(self._file.read)

    async def _read(self, queue: MessageQueue) -> int | None:
        await self.load()
        return None if self._stored is None else self._stored.get(queue)

    async def persist(self, queues: Iterable[MessageQueue]) -> None:
        """Store the offsets that have changed."""
        stored = self._stored or {}
        offsets = {queue: offset for queue in queues if (offset := self.table.get(queue)) is not None}
        if all(stored.get(queue) == offset for queue, offset in offsets.items()):
            return
        try:
            await _in_thread(lambda: self._file.write(offsets))
        except (OSError, ConfigError) as error:
            log.warning("group %s: saving %d offsets to a file failed: %s", self._group, len(offsets), error)
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
