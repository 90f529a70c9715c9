"""Certificates for the tests of TLS."""

import pathlib

import pytest

from rocketlet.remoting.tls.certificates import make_test_authority


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Return a directory with an authority, and with certificates that it has signed."""
    directory = tmp_path_factory.mktemp("authority")
    for name, content in make_test_authority(["localhost", "127.0.0.1"], 1).items():
        (directory / name).write_bytes(content)
    return directory
