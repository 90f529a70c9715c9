"""Stores for the tests of the data source."""

import pathlib

import pytest
from javastores import STORES, JavaStores, unpack_store
from logbuilder import LogBuilder


@pytest.fixture(scope="session")
def java_stores(vectors: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> JavaStores:
    """Return the store directories that a Java broker wrote, by name."""
    folder = tmp_path_factory.mktemp("java-stores")
    return {name: unpack_store(vectors, name, folder) for name in STORES}


@pytest.fixture
def log(tmp_path: pathlib.Path) -> LogBuilder:
    """Return an empty log with files of 4 KiB."""
    return LogBuilder(tmp_path / "store")
