"""Fixtures that every folder of tests uses."""

import pathlib

import hypothesis
import pytest

pytest_plugins = ["blocking", "command_line", "feature_page", "leftovers", "local_spark", "missing_tools", "pytester"]

# Other work on the machine must not fail an example for being slow.
hypothesis.settings.register_profile("rocketlet", deadline=None)
hypothesis.settings.load_profile("rocketlet")


@pytest.fixture(scope="session")
def vectors() -> pathlib.Path:
    """Return the folder of bytes that were recorded from an official broker and its clients."""
    return pathlib.Path(__file__).parent / "vectors"
