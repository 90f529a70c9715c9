"""Fixtures that every folder of tests uses."""

import gc
import pathlib
import time
from collections.abc import Callable, Iterator

import hypothesis
import pytest
from logbuilder import LogBuilder

pytest_plugins = [
    "blocking",
    "chromium",
    "ci_tests",
    "command_line",
    "durability_page",
    "feature_page",
    "leftovers",
    "local_spark",
    "missing_tools",
    "pytester",
    "scheduling",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer ``--mqadmin-page``, which ``interop/test_mqadmin.py`` reads."""
    parser.addoption("--mqadmin-page", type=pathlib.Path, help="write the page about mqadmin from this run")


# Other work on the machine must not fail an example for being slow.
hypothesis.settings.register_profile("rocketlet", deadline=None)
hypothesis.settings.register_profile("long", deadline=None, max_examples=3_000)
hypothesis.settings.load_profile("rocketlet")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Spare garbage collections, now and later, what is collected here: ten thousand tests are a million objects."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="session")
def vectors() -> pathlib.Path:
    """Return the folder of bytes that were recorded from an official broker and its clients."""
    return pathlib.Path(__file__).parent / "vectors"


@pytest.fixture
def time_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Return a call that takes the process to another time zone; after the test it is back."""

    def travel(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield travel
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def log(tmp_path: pathlib.Path) -> LogBuilder:
    """Return an empty log with files of 4 KiB."""
    return LogBuilder(tmp_path / "store")
