"""Stores for the tests of the data source."""

import pathlib
from collections.abc import Iterator

import pytest
from javastores import STORES, JavaStores, unpack_store
from threaded_cluster import ThreadedCluster


@pytest.fixture(scope="session")
def java_stores(vectors: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> JavaStores:
    """Return the store directories that a Java broker wrote, by name."""
    folder = tmp_path_factory.mktemp("java-stores")
    return {name: unpack_store(vectors, name, folder) for name in STORES}


@pytest.fixture
def cluster(tmp_path: pathlib.Path) -> Iterator[ThreadedCluster]:
    """Yield a cluster with one broker, broker-a, and a topic T of two queues."""
    with ThreadedCluster(tmp_path) as running:
        running.start_broker()
        running.create_topic("T", 2)
        yield running
