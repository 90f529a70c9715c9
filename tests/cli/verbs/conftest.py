"""A cluster that the tests of the verbs share: ``rocketlet up`` as a process; each test has names of its own."""

import itertools
import os
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack

import pytest
from command_line import COMMAND, Run, run_elsewhere, run_in_process

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def namesrv() -> Iterator[str]:
    """Return the address of the name server of a running cluster."""
    options = ("--ephemeral", "--namesrv-port", "0", "--broker-port", "0", "--set", "enablePropertyFilter=true")
    with subprocess.Popen(
        [*COMMAND, "up", *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as up:
        assert up.stdout is not None
        ready = up.stdout.readline()
        yield ready.split("namesrv=")[1].split()[0]
        up.terminate()


@pytest.fixture(autouse=True)
def _environment(namesrv: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", namesrv)


@pytest.fixture
def verb(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[object, str, str]]:
    """Return a call that runs ``rocketlet ARGUMENTS`` here and returns exit code, stdout and stderr."""

    def run(*arguments: object) -> tuple[object, str, str]:
        return run_in_process(capsys, str(arguments[0]))(*arguments[1:])

    return run


@pytest.fixture
def done(verb: Run) -> Callable[..., str]:
    """Return a call that runs ``rocketlet ARGUMENTS``, expects that it works, and returns what it prints."""

    def run(*arguments: object) -> str:
        code, out, err = verb(*arguments)
        assert (code, err) == (0, "")
        return out

    return run


@pytest.fixture
def failed(verb: Run) -> Callable[..., str]:
    """Return a call that runs ``rocketlet ARGUMENTS``, expects an exit code, and returns the one line on stderr."""

    def run(expected: int, *arguments: object) -> str:
        code, out, err = verb(*arguments)
        assert (code, out) == (expected, ""), err
        assert err.startswith("rocketlet: ")
        assert err.count("\n") == 1
        return err.removeprefix("rocketlet: ").rstrip("\n")

    return run


@pytest.fixture
def new_name(request: pytest.FixtureRequest) -> Callable[[], str]:
    """Return a call that gives names that no other test uses."""
    return lambda: f"{request.node.originalname}-{next(_numbers)}".replace("_", "-")


@pytest.fixture
def new_topic(done: Callable[..., str], new_name: Callable[[], str]) -> Callable[..., str]:
    """Return a call that makes a topic with so many queues."""

    def make(queues: int = 2) -> str:
        name = new_name()
        done("topic", "create", name, "--queues", queues)
        return name

    return make


@pytest.fixture
def new_group(done: Callable[..., str], new_name: Callable[[], str]) -> Callable[[], str]:
    """Return a call that makes a group."""

    def make() -> str:
        name = new_name()
        done("group", "create", name)
        return name

    return make


@pytest.fixture
def spawn() -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    """Return a call that starts ``rocketlet ARGUMENTS`` as a process with pipes."""
    with ExitStack() as started:

        def start(*arguments: str) -> subprocess.Popen[bytes]:
            command = [*COMMAND, *arguments]
            pipe = subprocess.PIPE
            process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=dict(os.environ))
            started.enter_context(process)
            started.callback(process.kill)
            return process

        yield start


@pytest.fixture
def done_elsewhere() -> Callable[..., Awaitable[str]]:
    """Return a call that runs ``rocketlet ARGUMENTS`` as a process and returns what it prints."""

    async def run(*arguments: str) -> str:
        code, out, err = await run_elsewhere(*arguments)
        assert (code, err) == (0, "")
        return out

    return run
