"""What follows an attempt to send."""

import pytest

from rocketlet.client.producer.delivery import RETRIED_CODES, SendAttempts
from rocketlet.client.session.results import SendResult, SendStatus
from rocketlet.common.errors import ConnectFailedError, RequestTimeoutError, ResponseError, RouteNotFoundError
from rocketlet.common.message import MessageQueue
from rocketlet.remoting.codec.codes import ResponseCode

A, B = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-b", 0)


def result(status: SendStatus, queue: MessageQueue = A) -> SendResult:
    """Return the result of an attempt."""
    return SendResult(status, "ID", "OFFSET-ID", queue, 7)


@pytest.mark.feature("K9")
def test_bad_status_is_the_outcome_unless_asked_otherwise() -> None:
    """FLUSH_DISK_TIMEOUT and its like are returned; with the setting on another broker is tried."""
    bad = result(SendStatus.FLUSH_DISK_TIMEOUT)
    assert SendAttempts(retries_bad_status=False).is_last(A, bad)

    attempts = SendAttempts(retries_bad_status=True)
    assert not attempts.is_last(A, bad)
    assert attempts.failed_broker == "broker-a"
    assert attempts.outcome() is bad


@pytest.mark.feature("K9")
def test_bad_status_wins_over_a_later_error() -> None:
    """A message that was stored badly was stored: the later failure is not raised."""
    bad = result(SendStatus.SLAVE_NOT_AVAILABLE)
    attempts = SendAttempts(retries_bad_status=True)
    attempts.is_last(A, bad)

    assert attempts.is_last(B, ResponseError(ResponseCode.MESSAGE_ILLEGAL, "no"))
    assert attempts.outcome() is bad


@pytest.mark.parametrize(
    ("error", "is_retried"),
    [
        (ConnectFailedError("x"), True),
        (RequestTimeoutError("x"), True),
        (RouteNotFoundError("x"), True),
        *((ResponseError(code, None), True) for code in (1, 2, 14, 16, 17, 204, 205, 1500)),
        *((ResponseError(code, None), False) for code in (13, 26, 29, 604)),
    ],
    ids=str,
)
def test_errors_that_another_broker_may_not_have_are_retried(error: ConnectFailedError, is_retried: bool) -> None:
    """Transport failures and Java's eight codes lead to another attempt, other codes do not."""
    assert SendAttempts(retries_bad_status=False).is_last(A, error) != is_retried


def test_retried_codes_are_javas() -> None:
    """The default of ``retryResponseCodes``."""
    assert set(RETRIED_CODES) == {1, 2, 14, 16, 17, 204, 205, 1500}


def test_last_error_names_all_attempts() -> None:
    """The error that is raised tells what was tried where."""
    attempts = SendAttempts(retries_bad_status=False)
    attempts.is_last(A, ConnectFailedError("cannot connect to a"))
    attempts.is_last(B, RequestTimeoutError("b was slow"))

    with pytest.raises(RequestTimeoutError, match="b was slow") as raised:
        attempts.outcome()
    assert raised.value.__notes__ == ["2 attempts: broker-a: cannot connect to a; broker-b: b was slow"]


def test_no_attempt_at_all_is_a_timeout() -> None:
    """A budget that is used up before the first attempt is the caller's time being over."""
    with pytest.raises(RequestTimeoutError):
        SendAttempts(retries_bad_status=False).outcome()
