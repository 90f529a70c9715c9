"""Fixtures for tests of the house itself."""

import os
import pathlib
import subprocess
import sys
from collections.abc import Callable

import pytest

ROOT = pathlib.Path(__file__).parent.parent.parent
PytestRun = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def checkout() -> pathlib.Path:
    """Return the folder of the checkout."""
    return ROOT


@pytest.fixture
def run_plugin(tmp_path: pathlib.Path) -> PytestRun:
    """Return a call that runs a test file under one of our plugins, outside the checkout."""

    def run(plugin: str, source: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "pytest.ini").write_text(
            f"[pytest]\nmarkers = feature(*ids): rows\npythonpath = {ROOT / 'tests' / 'support'}\n"
        )
        (tmp_path / "test_it.py").write_text(source)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", plugin, *arguments]
        quick = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "TMPDIR": str(tmp_path)}
        variables = {**os.environ, **quick, **environment}
        return subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)

    return run
