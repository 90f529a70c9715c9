"""Fixtures that every folder of tests uses."""

import pathlib

import pytest


@pytest.fixture(scope="session")
def vectors() -> pathlib.Path:
    """Return the folder of bytes that were recorded from an official broker and its clients."""
    return pathlib.Path(__file__).parent / "vectors"
