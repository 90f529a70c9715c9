"""The check that a run leaves nothing behind."""

import os
import pathlib
from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

PluginRun = Callable[..., CompletedProcess[str]]


def test_clean_run_passes(run_plugin: PluginRun):
    """A run that removes what it made passes, and pytest's own directories are no leftovers."""
    source = """
import tempfile
def test_file(tmp_path):
    with tempfile.TemporaryDirectory(): (tmp_path / "kept by pytest").touch()
"""
    run = run_plugin("leftovers", source)
    assert run.returncode == pytest.ExitCode.OK, run.stdout


def test_forgotten_file_fails_the_run(run_plugin: PluginRun):
    """A temporary file that stays fails a run whose tests all passed, and is named."""
    source = "import tempfile\ndef test_file(): tempfile.mkstemp(prefix='forgotten-')\n"
    run = run_plugin("leftovers", source)
    assert run.returncode == pytest.ExitCode.TESTS_FAILED
    assert "1 passed" in run.stdout
    assert "forgotten-" in run.stdout


def test_forgotten_process_fails_the_run(run_plugin: PluginRun):
    """A child process that still runs fails the run, and is named."""
    source = """
import subprocess
started = []
def test_process():
    child = subprocess.Popen(["sh", "-c", "echo; read line"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()  # before, its environment may not be there to be read
    started.append(child)
"""
    run = run_plugin("leftovers", source)
    assert run.returncode == pytest.ExitCode.TESTS_FAILED
    assert ": sh -c echo; read line" in run.stdout


def test_earlier_run_is_cleaned_up(run_plugin: PluginRun, tmp_path: pathlib.Path):
    """What a failed run has left is removed by a later one; what belongs to a running one stays."""
    ended, running = tmp_path / "rocketlet-tests-4194305-x", tmp_path / f"rocketlet-tests-{os.getpid()}-x"
    ended.mkdir()
    running.mkdir()
    run_plugin("leftovers", "def test_nothing(): pass\n")
    assert not ended.exists()
    assert running.exists()
