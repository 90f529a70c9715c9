"""Config files such as ``config/topics.json``: written so that a crash leaves the old texts or the new ones.

Rules (``ConfigManager``; store.md §9.1):

- Save: the new text is written and flushed as ``X.tmp``, then ``X`` becomes ``X.bak`` and ``X.tmp`` becomes ``X``. A
  crash between the two renames leaves only ``X.bak``, which both brokers accept; a full disk changes neither.
- Load: ``X``; when it is missing, empty or no valid text, ``X.bak``. Both missing means defaults. What is there and
  cannot be used or read is not missing, an empty file neither: going on with defaults would lose what it held. (Java
  goes on when both are empty.)
- A damaged ``X`` is kept as ``X.damaged``; it never takes the place of a good ``X.bak``.
- Several files that change together are written into a journal first, with a digest of what each held before; a start
  that finds one writes those files that still hold that, and leaves alone what somebody has changed since (ours).
"""

import errno
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, TypeVar

import msgspec

from ...common.errors import ConfigError, JsonError
from .files import OS_FILES, Files, make_lasting_directory

T = TypeVar("T")
_WAY_ON: Final = "restore a copy, or remove it to begin without"
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


def load_config(path: str, parse: Callable[[str], T], files: Files = OS_FILES, *, sets_aside: bool = False) -> T | None:
    """Return the parsed file, or its ``.bak`` where it is missing or damaged; ``None`` without both.

    ``parse`` raises ``JsonError`` or ``ValueError`` for what is no valid text. With ``sets_aside`` a damaged file for
    which the ``.bak`` stands in is renamed, as ``save_config_text`` would else put it in the place of the ``.bak``.

    Raises:
        ConfigError: Neither can be used, or one of them cannot be read.
    """
    problem = ""
    for candidate in (path, f"{path}.bak"):
        text = _read(candidate, files)
        if text is None:
            continue
        try:
            content = parse(_refuse_blank(text))
        except (JsonError, ValueError, RecursionError) as error:
            if problem:
                raise ConfigError(f"{problem}; {candidate} cannot be parsed: {error}; {_WAY_ON}") from error
            problem = f"{candidate} cannot be parsed: {error}"
            continue
        if problem:
            _pass_over(path, problem, files, sets_aside=sets_aside)
        return content
    if problem:
        raise ConfigError(f"{problem}; there is no other copy beside it; {_WAY_ON}")
    return None


def _refuse_blank(text: str) -> str:
    if not text.strip():
        raise ValueError(f"it holds {len(text)} characters and no text")
    return text


def _pass_over(path: str, problem: str, files: Files, *, sets_aside: bool) -> None:
    _log.warning("%s; going on with %s.bak", problem, path)
    if not sets_aside:
        return
    try:
        files.rename(path, f"{path}.damaged")
    except OSError as error:
        raise ConfigError(f"{path} is damaged and cannot be renamed: {error.strerror}") from error


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


class _Change(msgspec.Struct):
    """One file of a journal: the digest of the text before, and the text that takes its place."""

    before: str
    text: str


def save_config_texts(texts: Mapping[str, str], journal: str, files: Files = OS_FILES) -> Mapping[str, OSError]:
    """Write files by path so that a crash leaves all or none, once ``finish_config_texts`` was called.

    Return those that could not be written; the others are, all the same. The journal stands in the directory of the
    files, and without room for it they are written one by one.
    """
    if len(texts) > 1:
        changes = {
            os.path.basename(path): _Change(_digest(load_config_text(path, files)), text)
            for path, text in texts.items()
        }
        with suppress(OSError):
            replace_file(journal, msgspec.json.encode(changes), files)
    failures: dict[str, OSError] = {}
    for path, text in texts.items():
        try:
            save_config_text(path, text, files)
        except OSError as error:
            failures[path] = error
    if len(texts) > 1 and not failures:
        _remove_journal(journal, files)
    return failures


def finish_config_texts(journal: str, files: Files = OS_FILES) -> None:
    """Write what a crash has left unwritten of files that change together (raises ``ConfigError``)."""
    text = _read(journal, files)
    if text is None:
        return
    try:
        changes = msgspec.json.decode(text, type=dict[str, _Change])
        for name, change in changes.items():
            path = os.path.join(os.path.dirname(journal), os.path.basename(name))
            if _digest(load_config_text(path, files)) == change.before:
                _log.warning("%s was not written before the broker ended: writing it from %s", path, journal)
                save_config_text(path, change.text, files)
        _remove_journal(journal, files)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{journal} cannot be parsed: {error}; remove it to go on without") from error
    except OSError as error:
        raise ConfigError(f"{journal} cannot be worked off: {error}") from error


def _digest(text: str | None) -> str:
    import hashlib  # of use for changes of several files only

    return hashlib.sha256((text or "").encode()).hexdigest()


def _remove_journal(journal: str, files: Files) -> None:
    with suppress(FileNotFoundError):  # there was no room for it
        files.unlink(journal)
        files.sync_directory(os.path.dirname(journal) or os.curdir)


def replace_file(path: str, data: bytes, files: Files = OS_FILES, *, is_private: bool = False) -> None:
    """Put a new file in the place of another, with its permissions: a crash leaves either (raises ``OSError``).

    A private one is for its owner only, from the first byte on and whatever the other was.
    """
    directory = os.path.dirname(path) or os.curdir
    make_lasting_directory(files, directory)
    try:
        if is_private and files.exists(f"{path}.tmp"):
            files.unlink(f"{path}.tmp")  # a new one gets the permissions, and nobody has it open
        _write(f"{path}.tmp", data, files, 0o600 if is_private else 0o644)
        if not is_private and files.exists(path):
            files.copy_mode(path, f"{path}.tmp")
        files.rename(f"{path}.tmp", path)
    except OSError:
        with suppress(OSError):  # what stopped it may stop this, too
            files.unlink(f"{path}.tmp")
        raise
    files.sync_directory(directory)


def _write(path: str, data: bytes, files: Files, mode: int = 0o644) -> None:
    descriptor = files.create(path, 0, mode)
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
