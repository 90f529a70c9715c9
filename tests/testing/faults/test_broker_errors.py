"""Errors inside a broker are raised in the test that caused them."""

import logging
import pathlib
import subprocess
import sys
import traceback
from collections.abc import Iterator

import pytest
from raw_calls import open_caller

from rocketlet.broker.pull.handlers import PullHandlers
from rocketlet.common.errors import ConfigError
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.transport.server import answers
from rocketlet.testing import DiskFaults, RocketmqBroker

_log = logging.getLogger("rocketlet.broker.test")


@pytest.fixture
def broker() -> Iterator[RocketmqBroker]:
    """Run a broker that may fail."""
    with RocketmqBroker() as started:
        yield started


def fail(*_: object) -> Command:
    """Fail as a handler with a mistake does."""
    raise ZeroDivisionError("a mistake of ours")


@pytest.fixture
def mistaken_broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[RocketmqBroker]:
    """Run a broker with a mistake in the handler of pulls."""
    monkeypatch.setattr(PullHandlers, "pull", answers(RequestCode.PULL_MESSAGE)(fail))
    with RocketmqBroker() as started:
        yield started


async def test_failed_handler_fails_the_test(mistaken_broker: RocketmqBroker) -> None:
    """The client gets its answer; the end of the test raises the error with its traceback and the request, once."""
    broker = mistaken_broker
    async with open_caller(broker.address) as caller:
        for _ in range(100):  # their mistakes are logged so often and no more
            await caller.ask(RequestCode.GET_MAX_OFFSET)
        answer = await caller.pull("orders")
        assert "ZeroDivisionError" in str(answer.remark)
    with pytest.raises(ExceptionGroup, match="broker-a has failed inside") as told:
        broker.end_test()
    (error,) = told.value.exceptions
    assert isinstance(error, ZeroDivisionError)
    assert "in fail" in "".join(traceback.format_exception(error))
    assert "broker-a failed to serve PULL_MESSAGE (11) from 127.0.0.1:" in error.__notes__[0]
    broker.end_test()


def log_failure(error: Exception) -> None:
    """Log an error as a fault boundary does."""
    try:
        raise error
    except Exception:  # as there
        _log.exception("a job failed")


@pytest.mark.parametrize("error", [OSError(5, "of a disk"), ConfigError("of a user")])
def test_what_comes_from_outside_is_no_error_inside(broker: RocketmqBroker, error: Exception) -> None:
    """Files and what users or peers do are not the broker's own failures."""
    broker.on_loop(lambda: log_failure(error))
    broker.end_test()


def test_errors_of_other_threads_are_not_the_brokers(broker: RocketmqBroker) -> None:
    """A client of ours in the test logs with the same loggers."""
    log_failure(ZeroDivisionError("of the test's own thread"))
    broker.end_test()


def test_errors_behind_injected_faults_are_wanted() -> None:
    """What a disk of the test's making has caused is not told again."""
    disk = DiskFaults()

    def write_and_fail() -> None:
        try:
            disk.create(str(broker.store / "more"), 1)
        except OSError as error:
            try:
                raise ZeroDivisionError("a consequence") from error
            except ZeroDivisionError:
                _log.exception("a job failed")

    with RocketmqBroker(files=disk) as broker, broker.faults.disk_full():
        broker.on_loop(write_and_fail)
        broker.end_test()


def test_logs_go_where_they_went(tmp_path: pathlib.Path) -> None:
    """A program without any set-up of its logs sees warnings on stderr, once, while brokers listen to them."""
    code = """if True:
        import logging
        from rocketlet.testing import RocketmqBroker
        with RocketmqBroker(), RocketmqBroker():
            logging.getLogger("rocketlet.client").warning("look here")
    """
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert run.stderr == "look here\n"


def test_error_fails_a_broker_that_leaves() -> None:
    """A broker of a test's own raises it when it stops."""
    with pytest.raises(ExceptionGroup, match="broker-a has failed inside"), RocketmqBroker() as broker:
        broker.on_loop(lambda: log_failure(ZeroDivisionError("inside")))
    assert not broker.store.exists()
