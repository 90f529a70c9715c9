"""Where stores and reports lie: local directories, and URLs of any file system that pyarrow or fsspec knows.

    /data/store  file:///data/store        local
    s3://bucket/store  gs://…  hdfs://…    pyarrow.fs; s3a:// and s3n:// are s3://
    memory://store  sftp://…               fsspec, for all that pyarrow does not know; fsspec+s3:// asks for it
    /data/*/store  s3://bucket/store-*     all that fit, which must be one at least

Rules:

- ``Storage.options`` are the arguments of the file system as JSON: those of pyarrow's class of the scheme
  (``S3FileSystem``: access_key, secret_key, endpoint_override, region, …), else those of fsspec's. Without them the
  file system finds its settings where it always does: in the environment and in its configuration files.
- What is wrong with a place or its options is a ``ConfigError``; what cannot be read is a ``StoreError``.
- Small files (``Folder``) appear whole or not at all, also when two write one at once: a local one is renamed into
  place, object stores do the same by themselves. A folder travels to tasks, and connects where it is used.
"""

import contextlib
import fnmatch
import glob
import importlib
import os
import re
import uuid
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow.fs as pafs

from ...common.errors import ConfigError, StoreError

OPTIONS_KEY: Final = "storageOptions"
_FILE: Final = "file:"
_MARK: Final = "://"
_FSSPEC: Final = "fsspec+"
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_SCHEMES: Final = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "gcs": "gs", "hdfs": "hdfs", "abfs": "abfs"}
_CLASSES: Final = {"s3": "S3FileSystem", "gs": "GcsFileSystem", "hdfs": "HadoopFileSystem", "abfs": "AzureFileSystem"}
_WILD: Final = frozenset("*?[")


class FolderEntry(NamedTuple):
    """A name in a directory; ``size`` is 0 for what is no file."""

    name: str
    is_file: bool
    size: int


@dataclass(frozen=True)
class Storage:
    """The arguments of file systems, as the text of a JSON object."""

    options: str = field(default="{}", repr=False)

    def resolve(self, place: str) -> tuple[pafs.FileSystem, str]:
        """Return the file system of a place, local ones too, and the path in it.

        Raises:
            ConfigError: Nothing knows the scheme, or the options do not fit.
        """
        if not is_url(place):
            return pafs.LocalFileSystem(), os.path.abspath(local_path(place))
        scheme, _, path = place.partition(_MARK)
        with _refused(place):
            return _of_scheme(scheme, path, self.options)


def is_url(place: str) -> bool:
    """Tell whether a place is on a file system that is not the local one."""
    scheme, mark, _ = place.partition(_MARK)
    return bool(mark) and not place.startswith(_FILE) and _SCHEME.fullmatch(scheme) is not None


def is_pattern(place: str) -> bool:
    """Tell whether a place has signs that stand for others."""
    return not _WILD.isdisjoint(place)


def local_path(place: str) -> str:
    """Return the path of a local place."""
    return "/" + place.removeprefix(_FILE).lstrip("/") if place.startswith(_FILE) else place


def expand_places(places: Iterable[str], storage: Storage) -> list[str]:
    """Return the places with patterns replaced by what fits them, in order.

    Raises:
        ConfigError: Nothing fits.
    """
    return [found for place in places for found in _expand(place if is_url(place) else local_path(place), storage)]


def split_places(text: str, storage: Storage) -> list[str]:
    """Return the places of a list with commas; what exists, or fits as a pattern, is one place."""
    place = text if is_url(text) else local_path(text)
    if "," not in text or has_place(place, storage) or (_WILD.intersection(place) and _find(place, storage)):
        return [text]
    parts = [part.strip() for part in text.split(",") if part.strip()]
    return [part if is_url(part) else local_path(part) for part in parts]


def list_place(place: str, storage: Storage) -> list[FolderEntry]:
    """Return what a directory holds (raises ``OSError``)."""
    if not is_url(place):
        with os.scandir(place) as entries:
            return [_describe(entry) for entry in entries]
    system, path = storage.resolve(place)
    with _unread(place):
        found = system.get_file_info(pafs.FileSelector(path))
    return [FolderEntry(info.base_name, info.type == pafs.FileType.File, info.size or 0) for info in found]


def has_place(place: str, storage: Storage) -> bool:
    """Tell whether a file or directory exists."""
    if not is_url(place):
        return os.path.exists(place)
    system, path = storage.resolve(place)
    with _unread(place):
        return system.get_file_info(path).type != pafs.FileType.NotFound


def read_place(place: str, storage: Storage) -> bytes:
    """Return the content of a small file (raises ``OSError``)."""
    system, path = storage.resolve(place)
    with system.open_input_file(path) as file:
        return file.read()


def list_names(directory: str) -> list[str]:
    """Return the names in a local directory, none where it cannot be read."""
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def _describe(entry: os.DirEntry[str]) -> FolderEntry:
    try:
        is_file = entry.is_file()
        return FolderEntry(entry.name, is_file, entry.stat().st_size if is_file else 0)
    except FileNotFoundError:  # a broker deleted it while it was listed
        return FolderEntry(entry.name, is_file=False, size=0)


def _expand(place: str, storage: Storage) -> list[str]:
    if not is_pattern(place) or (not is_url(place) and os.path.exists(place)):
        return [place]
    found = _find(place, storage)
    if not found:
        raise ConfigError(f"no store matches {place}", key="path")
    return found


def _find(place: str, storage: Storage) -> list[str]:
    return _match(place, storage) if is_url(place) else sorted(glob.glob(place))


def _match(place: str, storage: Storage) -> list[str]:
    """Return the directories of a remote file system that fit a pattern, part by part."""
    scheme, _, path = place.partition(_MARK)
    bucket, *parts = path.strip("/").split("/")
    found = [f"{scheme}{_MARK}{bucket}"]
    for part in parts:
        if not is_pattern(part):
            found = [f"{one}/{part}" for one in found]
            continue
        found = [f"{one}/{entry.name}" for one in found for entry in sorted(_listed(one, storage))
                 if fnmatch.fnmatchcase(entry.name, part)]  # fmt: skip
    return [one for one in found if has_place(one, storage)]


def _listed(place: str, storage: Storage) -> list[FolderEntry]:
    try:
        return list_place(place, storage)
    except FileNotFoundError:
        return []


def _of_scheme(scheme: str, path: str, options: str) -> tuple[pafs.FileSystem, str]:
    known = _SCHEMES.get(scheme)
    if known is None:
        return _of_fsspec(scheme.removeprefix(_FSSPEC), path, options)
    authority, _, inner = path.partition("/")
    if not _parse(options):
        system, root = _system_of(f"{known}{_MARK}{authority}/-")
        return system, root.removesuffix("-") + inner
    system = _system_with(known, options)
    return system, f"/{inner}" if known == "hdfs" else f"{authority.partition('@')[0]}/{inner}"


@lru_cache(maxsize=64)
def _system_of(url: str) -> tuple[pafs.FileSystem, str]:
    return pafs.FileSystem.from_uri(url)


@lru_cache(maxsize=64)
def _system_with(known: str, options: str) -> pafs.FileSystem:
    return getattr(pafs, _CLASSES[known])(**_parse(options))


def _of_fsspec(scheme: str, path: str, options: str) -> tuple[pafs.FileSystem, str]:
    core = importlib.import_module("fsspec.core")
    system, inner = core.url_to_fs(f"{scheme}{_MARK}{path}", **_parse(options))
    return pafs.PyFileSystem(pafs.FSSpecHandler(system)), inner


def _parse(options: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(options, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{OPTIONS_KEY} is {options!r}, not a JSON object", key=OPTIONS_KEY) from error


@contextmanager
def _refused(place: str) -> Generator[None]:
    try:
        yield
    except ImportError as error:
        raise ConfigError(f"store {place} needs the package {error.name}", key="path") from error
    except (TypeError, ValueError, NotImplementedError) as error:
        raise ConfigError(f"store {place} cannot be reached: {error}", key=OPTIONS_KEY) from error
    except OSError as error:
        raise StoreError(f"store {place} cannot be reached: {error}") from error


@contextmanager
def _unread(place: str) -> Generator[None]:
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise StoreError(f"{place} cannot be read: {error}") from error


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
