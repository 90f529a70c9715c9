"""Store directories that are closed after the test, and Java's directories."""

import pathlib
from collections.abc import Callable, Iterator

import pytest
from retention import age, cleaned_directory, log_files
from stores import GoldenStore, LimitedFiles, StoreDirectory

from rocketlet.store.files.files import OS_FILES, Descriptors


@pytest.fixture
def directory(tmp_path: pathlib.Path) -> Iterator[StoreDirectory]:
    """Give a store directory with tiny files, not yet made."""
    store = StoreDirectory(tmp_path / "store")
    yield store
    store.close_all()


@pytest.fixture
def copy_of(directory: StoreDirectory) -> Iterator[Callable[..., StoreDirectory]]:
    """Give a function that copies the directory as it is on disk at that moment."""
    copies: list[StoreDirectory] = []

    def make(**settings: int) -> StoreDirectory:
        copies.append(directory.copy(f"copy{len(copies)}", **settings))
        return copies[-1]

    yield make
    for one in copies:
        one.close_all()


@pytest.fixture
def disk() -> LimitedFiles:
    """Give a disk that can be full or fail."""
    return LimitedFiles()


@pytest.fixture
def descriptors() -> Iterator[Descriptors]:
    """Give a set of open files that is closed after the test."""
    opened = Descriptors(OS_FILES, 8)
    yield opened
    opened.close()


@pytest.fixture
def golden(vectors: pathlib.Path, tmp_path: pathlib.Path) -> Iterator[Callable[[str], GoldenStore]]:
    """Give a function that unpacks a directory which a Java broker wrote."""
    unpacked: list[GoldenStore] = []

    def unpack(name: str) -> GoldenStore:
        unpacked.append(GoldenStore.unpack(vectors, name, tmp_path))
        return unpacked[-1]

    yield unpack
    for one in unpacked:
        one.directory.close_all()


@pytest.fixture
def aged(tmp_path: pathlib.Path) -> Iterator[StoreDirectory]:
    """Give a closed store of 120 messages in 3 queues and 8 files, all but the last two of which are 2 hours old."""
    directory = cleaned_directory(tmp_path / "store")
    directory.fill(120)
    assert log_files(directory) == list(range(8))
    age(directory, range(6), hours=2)
    age(directory, range(6, 8), hours=0.5)
    yield directory
    directory.close_all()


@pytest.fixture
def unpacked(golden: Callable[[str], GoldenStore]) -> pathlib.Path:
    """Give the directory with timer messages that a Java broker wrote."""
    return golden("delay-retry").directory.root
