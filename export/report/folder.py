"""A directory of small files, local or behind a URL (``places``).

Rules:

- A local file appears whole or not at all, also when two write it at once: it is renamed into place. Object stores do
  the same by themselves.
- It travels to tasks, and connects where it is used.
"""

import contextlib
import os
import uuid
from collections.abc import Generator
from dataclasses import dataclass, field

import pyarrow.fs as pafs

from ...common.errors import ConfigError, StoreError
from ..plan.places import Storage, has_place, is_url, list_place, local_path, read_place


@dataclass(frozen=True)
class Folder:
    """A directory, which need not be there yet."""

    path: str
    storage: Storage = field(default_factory=Storage)

    @classmethod
    def of_file(cls, path: str, storage: Storage | None = None) -> tuple["Folder", str]:
        """Return the directory of a file and its name."""
        folder, _, name = path.rpartition("/")
        return cls(folder or ("/" if path.startswith("/") else "."), storage or Storage()), name

    def exists(self) -> bool:
        """Tell whether it is there, as a directory (raises ``ConfigError``)."""
        if not is_url(self.path):
            return os.path.isdir(local_path(self.path))
        with self._refusing(self.path, "read"):
            system, path = self.storage.resolve(self.path)
            return system.get_file_info(path).type == pafs.FileType.Directory

    def has(self, name: str) -> bool:
        """Tell whether it holds a file (raises ``ConfigError``)."""
        with self._refusing(self._of(name), "read"):
            return has_place(self._of(name), self.storage)

    def names(self) -> list[str]:
        """Return the names of its files (raises ``ConfigError``)."""
        with self._refusing(self.path, "read"):
            return sorted(entry.name for entry in list_place(self._place, self.storage) if entry.is_file)

    def read(self, name: str) -> bytes:
        """Return the content of a file (raises ``ConfigError``)."""
        path = self._of(name)
        with self._refusing(path, "read"):
            if is_url(path):
                return read_place(path, self.storage)
            with open(path, "rb") as file:
                return file.read()

    def write(self, name: str, content: bytes) -> None:
        """Write or replace a file, and make the directory if need be (raises ``ConfigError``)."""
        with self._refusing(self._of(name), "written"):
            if is_url(self.path):
                self._write_remotely(name, content)
            else:
                _write_locally(self._place, name, content)

    def _write_remotely(self, name: str, content: bytes) -> None:
        system, path = self.storage.resolve(self.path)
        inner = f"{path.rstrip('/')}/{name}"
        try:
            file = system.open_output_stream(inner)
        except FileNotFoundError:  # object stores have no directories to be made before
            system.create_dir(path, recursive=True)
            file = system.open_output_stream(inner)
        with file:
            file.write(content)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        system, path = self.storage.resolve(self.path)
        with contextlib.suppress(OSError):
            system.delete_file(f"{path.rstrip('/')}/{name}")

    @property
    def _place(self) -> str:
        return self.path if is_url(self.path) else local_path(self.path)

    def _of(self, name: str) -> str:
        return f"{self._place.rstrip('/')}/{name}"

    @contextlib.contextmanager
    def _refusing(self, place: str, verb: str) -> Generator[None]:
        try:
            yield
        except OSError as error:
            raise ConfigError(f"{place} cannot be {verb}: {error.strerror or error}") from error
        except StoreError as error:
            raise ConfigError(str(error)) from error


def _write_locally(folder: str, name: str, content: bytes) -> None:
    new = os.path.join(folder, f".{name}.{uuid.uuid4().hex}")
    try:
        os.makedirs(folder, exist_ok=True)
        with open(new, "wb") as file:
            file.write(content)
        os.replace(new, os.path.join(folder, name))
    finally:
        with contextlib.suppress(OSError):
            os.unlink(new)
