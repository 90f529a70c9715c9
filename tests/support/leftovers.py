"""A run that leaves a process or a file behind has failed, even when each test passed.

A run has a temporary directory of its own, which every part and every child gets by ``TMPDIR``: in memory if it can be,
since the tests flush ever so many small files, and waiting for a disk doubles their time. Looked at: what is in
it, processes that have it in their environment, and names at the top of the checkout (tool caches aside). After a
failed run the directory stays to be read, until a later run removes it.
"""

import os
import pathlib
import shutil
import tempfile

import pytest

CHECKOUT = pathlib.Path(__file__).parent.parent.parent
PREFIX = "rocketlet-tests-"
TOOL_NAMES = frozenset({".pytest_cache", ".hypothesis", ".ruff_cache", "__pycache__"})

MEMORY = pathlib.Path("/dev/shm")  # noqa: S108 # a directory of our own is made there
LEAST_ROOM = 4 << 30  # a run keeps less than 1 GiB


def usual_temporary() -> str:
    """Return where temporary files go: where TMPDIR says, else into memory that has room and lets programs run."""
    if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK):
        about = os.statvfs(MEMORY)
        if about.f_bavail * about.f_frsize >= LEAST_ROOM and not about.f_flag & os.ST_NOEXEC:
            return str(MEMORY)
    return tempfile.gettempdir()


def processes_using(temporary: pathlib.Path) -> dict[int, str]:
    """Return the command lines of processes whose ``TMPDIR`` is the directory; none on a system without /proc."""
    mark = f"TMPDIR={temporary}".encode()
    found: dict[int, str] = {}
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes().split(b"\0"):
                found[int(process.name)] = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
        except OSError:
            continue  # another user's, or it ended while we looked
    return found


def remove_earlier_runs(temporary: pathlib.Path) -> None:
    """Remove the directories of runs whose process has ended."""
    for path in temporary.glob(f"{PREFIX}*"):
        pid = path.name.removeprefix(PREFIX).partition("-")[0]
        if not pid.isdecimal() or not is_running(int(pid)):
            shutil.rmtree(path, ignore_errors=True)


def is_running(pid: int) -> bool:
    """Tell whether there is a process of this id."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class LeftoverCheck:
    """Compares the end of a run with its start."""

    def __init__(self) -> None:
        self._was_named, self._usual_temporary = os.environ.get("TMPDIR"), tempfile.gettempdir()
        parent = usual_temporary()
        remove_earlier_runs(pathlib.Path(parent))
        self._temporary = pathlib.Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=parent))
        os.environ["TMPDIR"] = tempfile.tempdir = str(self._temporary)
        self._names = set(CHECKOUT.iterdir())
        self.found: list[str] = []

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail the run when something is left."""
        processes = processes_using(self._temporary)
        left = {path for path in set(CHECKOUT.iterdir()) - self._names if path.name not in TOOL_NAMES}
        left |= {path for path in self._temporary.iterdir() if not path.name.startswith("pytest-of-")}
        self.found = [f"process {pid}: {command}" for pid, command in processes.items()]
        self.found += [f"file {path}" for path in sorted(left)]
        if self.found and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if session.exitstatus in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
            shutil.rmtree(self._temporary)

    def pytest_unconfigure(self) -> None:
        """Use the usual temporary directory again."""
        tempfile.tempdir = self._usual_temporary
        if self._was_named is None:
            os.environ.pop("TMPDIR", None)
        else:
            os.environ["TMPDIR"] = self._was_named

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name what is left."""
        if self.found:
            terminalreporter.section("the run left behind", red=True)
            for line in self.found:
                terminalreporter.line(line)


def pytest_configure(config: pytest.Config) -> None:
    """Take note of the start."""
    config.pluginmanager.register(LeftoverCheck(), "leftover-check")
