"""Config files such as ``config/topics.json``: written so that a crash leaves the old or the new text.

Rules (``ConfigManager``; store.md §9.1):

- Save: the new text is written and flushed as ``X.tmp``, then ``X`` becomes ``X.bak`` and ``X.tmp`` becomes ``X``. A
  crash between the two renames leaves only ``X.bak``, which both brokers accept; a full disk changes neither.
- Load: ``X``; when it is missing, empty or no valid text, ``X.bak``. Both missing means defaults. A file or directory
  that cannot be read is not a missing one: going on without it would lose what it holds.
"""

import errno
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from ..common.errors import ConfigError, JsonError
from .files import OS_FILES, Files, make_lasting_directory

T = TypeVar("T")
_log = logging.getLogger(__name__)


def load_config_text(path: str, files: Files = OS_FILES) -> str | None:
    """Return the text of the file, or of its ``.bak`` when the file is missing or empty; ``None`` without both.

    Raises:
        ConfigError: One of them cannot be read.
    """
    for candidate in (path, f"{path}.bak"):
        text = _read(path=candidate, files=files)
        if text:
            return text
    return None


def load_config(path: str, parse: Callable[[str], T], files: Files = OS_FILES) -> T | None:
    """Return the parsed file; one that does not parse gives way to its ``.bak``.

    Raises:
        ConfigError: The ``.bak`` does not parse either, or one of them cannot be read.
    """
    text = _read(path, files)
    problem = ""
    if text:
        try:
            return parse(text)
        except (JsonError, ValueError) as error:
            problem = str(error)
    backup = _read(f"{path}.bak", files)
    if not backup:
        if text:
            raise ConfigError(
                f"{path} cannot be parsed, and there is no {path}.bak: {problem}; restore a copy, or remove it"
            )
        return None
    if problem:
        _log.warning("%s is passed over for its .bak: %s", path, problem)
    try:
        return parse(backup)
    except (JsonError, ValueError) as error:
        raise ConfigError(f"{path}.bak cannot be parsed: {error}; restore a copy, or remove it") from error


def save_config_text(path: str, text: str, files: Files = OS_FILES) -> None:
    """Write the file, keeping the text before as ``.bak`` (raises ``OSError``)."""
    directory = os.path.dirname(path) or os.curdir
    make_lasting_directory(files, directory)
    try:
        _write(f"{path}.tmp", text.encode(), files)
    except OSError:
        with suppress(FileNotFoundError):  # it could not even be made
            files.unlink(f"{path}.tmp")
        raise
    if files.exists(path) and files.size(path):
        files.rename(path, f"{path}.bak")
        files.sync_directory(directory)
    files.rename(f"{path}.tmp", path)
    files.sync_directory(directory)


def _write(path: str, data: bytes, files: Files) -> None:
    descriptor = files.create(path, 0)
    try:
        files.truncate(descriptor, 0)
        if files.pwrite(descriptor, data, 0) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        files.sync(descriptor)
    finally:
        files.close(descriptor)


def _read(path: str, files: Files) -> str | None:
    try:
        descriptor = files.open(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    try:
        return files.pread(descriptor, files.size(path), 0).decode("utf-8", "replace")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    finally:
        files.close(descriptor)
