"""The JSON files of ``config/``: tables that live in memory and are written when they have changed.

A table counts its changes and hands out its content as a struct; it knows no file. ``ConfigFolder`` loads tables at
the start and writes those that changed by a thread, since a write waits for the disk. What is written together is the
content at one moment, and after a crash all of it is there or nothing: a request that changes several tables in one
turn of the loop, as the deletion of a topic does, is never done by half. The formats are Java's (spec store.md §9).
"""

import asyncio
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec

from ...common.java_json import read_table_as
from ...common.metadata import DataVersion
from ...store.files.config_files import finish_config_texts, load_config, save_config_texts
from ...store.files.files import OS_FILES, Files

ContentT = TypeVar("ContentT", bound=msgspec.Struct)


RETRY_MS = 1_000  # after a table that could not be saved
JOURNAL = "tables.journal"


class ConfigTable(Protocol[ContentT]):
    """What ``ConfigFolder`` keeps on disk."""

    @property
    def file_name(self) -> str:
        """The name of its file."""
        ...

    @property
    def content_type(self) -> type[ContentT]:
        """The shape of its file."""
        ...

    @property
    def change_count(self) -> int:
        """A number that is another one after each change."""
        ...

    def content(self) -> ContentT:
        """Return what its file shall hold."""
        ...

    def load(self, content: ContentT) -> None:
        """Take over what its file held."""
        ...


class ConfigFolder:
    """The folder ``config`` of a store."""

    def __init__(self, folder: str, writer: Executor, files: Files = OS_FILES) -> None:
        self._folder = folder
        self._journal = os.path.join(folder, JOURNAL)
        self._files = files
        self._writer = writer
        self._saved_counts: dict[str, int] = {}
        self._turn = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<ConfigFolder {self._folder}>"

    def load(self, table: ConfigTable[ContentT]) -> None:
        """Fill a table from its file, or from the backup of a file that cannot be used; without both nothing changes.

        Raises:
            ConfigError: neither can be used.
        """
        parse = partial(read_table_as, kind=table.content_type)
        content = load_config(self._path(table), parse, self._files, sets_aside=True)
        if content is not None:
            table.load(content)
        self._saved_counts[table.file_name] = table.change_count

    def finish(self) -> None:
        """Write what a crash has left of tables that were written together; called before they are loaded.

        Raises:
            ConfigError: the disk does not let it.
        """
        finish_config_texts(self._journal, self._files)

    async def save(self, table: ConfigTable[Any]) -> None:
        """Write a table if it has changed since it was loaded or written last.

        Raises:
            OSError: the disk did not take it; the next call tries again.
        """
        for error in (await self.save_together([table])).values():
            raise error

    async def save_together(self, tables: Iterable[ConfigTable[Any]]) -> Mapping[str, Exception]:
        """Write those tables that have changed, as they are now; return why some were not, by the name of the file.

        The others are written all the same; the next call tries again.
        """
        async with self._turn:
            failures: dict[str, Exception] = {}
            texts: dict[str, str] = {}
            counts: dict[str, int] = {}
            for table in tables:
                name, count = table.file_name, table.change_count
                if self._saved_counts.get(name) != count:
                    try:
                        texts[self._path(table)] = _format(table)
                    except Exception as error:  # the fault boundary of a table: its content must not cost the others
                        failures[name] = error
                    else:
                        counts[name] = count
            refused = await self._write(texts)
            failures |= {os.path.basename(path): error for path, error in refused.items()}
            self._saved_counts |= {name: count for name, count in counts.items() if name not in failures}
            return failures

    async def _write(self, texts: Mapping[str, str]) -> Mapping[str, OSError]:
        if not texts:
            return {}
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._writer, save_config_texts, texts, self._journal, self._files)

    def _path(self, table: ConfigTable[ContentT]) -> str:
        return os.path.join(self._folder, table.file_name)


def next_version(version: DataVersion, now_ms: int) -> DataVersion:
    """Return the version of a table after one more change."""
    return msgspec.structs.replace(version, counter=version.counter + 1, timestamp=now_ms)


def _format(table: ConfigTable[Any]) -> str:
    return msgspec.json.format(msgspec.json.encode(table.content()), indent=1).decode()
