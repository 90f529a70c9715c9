"""Fixtures that run the command line as its users do: as a process."""

import asyncio
import os
import pathlib
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from rocketlet.cli.instances import FILE_NAME, find_instance
from rocketlet.cli.main import main

COMMAND = (sys.executable, "-m", "rocketlet")


@dataclass
class Running:
    """A server that has printed its ready line."""

    process: subprocess.Popen[str]
    ready: str

    @property
    def addresses(self) -> dict[str, str]:
        """The addresses of the ready line by part."""
        return dict(re.findall(r"(\w+)=(\S+)", self.ready))

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str, str]:
        """Send a signal; return exit code, what else was printed, and what was logged."""
        self.process.send_signal(number)
        out, err = self.process.communicate()
        return self.process.returncode, out, err


Start = Callable[..., Running]
Refuse = Callable[..., str]


@pytest.fixture
def start(tmp_path: pathlib.Path) -> Iterator[Start]:
    """Return a call that starts ``rocketlet ARGUMENTS`` and waits for its ready line."""
    with ExitStack() as started:

        def run(*arguments: str, **environment: str) -> Running:
            variables = {**os.environ, "XDG_DATA_HOME": str(tmp_path / "data"), **environment}
            process = subprocess.Popen(
                [*COMMAND, *arguments],
                cwd=tmp_path,
                env=variables,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            started.enter_context(process)
            started.callback(process.terminate)
            assert process.stdout is not None
            ready = process.stdout.readline()
            if not ready:
                pytest.fail(f"no ready line: {process.communicate()[1]}")
            return Running(process, ready)

        yield run


@pytest.fixture
def refuse(tmp_path: pathlib.Path) -> Refuse:
    """Return a call that runs ``rocketlet ARGUMENTS``, expects exit code 2, and returns its line on stderr.

    ``behind`` is a command that runs another one, such as ``env``.
    """

    def run(*arguments: str, behind: Sequence[str] = ()) -> str:
        command = [*behind, *COMMAND, *arguments]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
        assert ended.returncode == 2, ended.stderr
        assert ended.stdout == ""
        assert ended.stderr.count("\n") == 1, ended.stderr
        return ended.stderr

    return run


Run = Callable[..., tuple[object, str, str]]


def run_in_process(capsys: pytest.CaptureFixture[str], command: str) -> Run:
    """Return a call that runs ``rocketlet COMMAND ARGUMENTS`` here and returns exit code, stdout and stderr."""

    def run(*arguments: object) -> tuple[object, str, str]:
        with pytest.raises(SystemExit) as caught:
            main([command, *map(str, arguments)])
        shown = capsys.readouterr()
        return caught.value.code, shown.out, shown.err

    return run


async def run_elsewhere(*arguments: str) -> tuple[int | None, str, str]:
    """Run ``rocketlet ARGUMENTS`` as a process, while this loop goes on; return exit code, stdout and stderr."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*COMMAND, *arguments, stdout=pipe, stderr=pipe)
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


CommandLine = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def command(tmp_path: pathlib.Path) -> Iterator[CommandLine]:
    """Return a call that runs ``rocketlet ARGUMENTS`` to its end, in a home of its own.

    What it leaves running in the background is stopped after the test.
    """
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    own = {"XDG_DATA_HOME": str(tmp_path / "data"), "TMPDIR": str(temporary)}

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        variables = {key: text for key, text in os.environ.items() if key != "NAMESRV_ADDR"} | own | environment
        return subprocess.run(
            [*COMMAND, *arguments], cwd=tmp_path, env=variables, capture_output=True, text=True, check=False
        )

    yield run
    for path in tmp_path.rglob(FILE_NAME):
        running = find_instance(str(path.parent))
        if running is not None:
            with running:
                running.terminate()
                running.wait_end()
