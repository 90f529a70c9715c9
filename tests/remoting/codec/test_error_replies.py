"""Answers to requests that could not be served, and how logs name these requests."""

import errno
import logging

import pytest

from rocketlet.common.codes import ResponseCode
from rocketlet.common.errors import HeaderError
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.error_replies import describe_request, failure_reply, unknown_code_reply
from rocketlet.remoting.codec.request_codes import RequestCode

PEER = "10.0.0.9:4711"
PULL = Command.request(RequestCode.PULL_MESSAGE, {"consumerGroup": "billing", "topic": "orders", "queueId": "3"})


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (PULL, f"PULL_MESSAGE (11) from {PEER}, consumerGroup billing, topic orders, queueId 3"),
        (
            Command.request(RequestCode.SEND_MESSAGE_V2, {"a": "shop", "b": "orders", "e": "0"}),
            f"SEND_MESSAGE_V2 (310) from {PEER}, producerGroup shop, topic orders, queueId 0",
        ),
        (Command.request(9_999), f"request of unknown code 9999 from {PEER}"),
        (
            Command.request(RequestCode.PULL_MESSAGE, {"topic": "a\nERROR forged"}),
            f"PULL_MESSAGE (11) from {PEER}, topic 'a\\nERROR forged'",
        ),
        (
            Command.request(RequestCode.PULL_MESSAGE, {"topic": "t" * 9_000}),
            f"PULL_MESSAGE (11) from {PEER}, topic {'t' * 127}…",
        ),
    ],
)
def test_request_is_named_by_code_peer_and_what_it_is_about(command: Command, named: str) -> None:
    """An operator finds group, topic and queue; what a client sends neither forges a line nor fills the log."""
    assert describe_request(command, PEER) == named


@pytest.mark.parametrize(
    ("error", "level", "told"),
    [
        (HeaderError("queueOffset is missing"), logging.WARNING, "refusing {}: queueOffset is missing"),
        (OSError(errno.EIO, "I/O error", "/store/x"), logging.ERROR, "{} failed: /store/x cannot be used: I/O error"),
        (RuntimeError("no luck"), logging.ERROR, "{} failed"),
    ],
)
def test_failed_request_is_named_in_the_log(
    error: Exception, level: int, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each kind of failure names the request; the traceback stands behind what nobody expected."""
    assert failure_reply(PULL, error, PEER).code == ResponseCode.SYSTEM_ERROR
    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (level, told.format(describe_request(PULL, PEER)))
    assert (record.exc_info is not None) == isinstance(error, RuntimeError)


def test_request_that_is_not_built_is_refused_by_its_name() -> None:
    """Official brokers would answer it, so its sender is told what is missing here."""
    remark = unknown_code_reply(Command.request(RequestCode.POP_ROLLBACK), PEER).remark
    assert remark == " request type 200056 not supported (POP_ROLLBACK)"


def test_request_without_a_handler_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """By its name, also when this server does not know how to serve it."""
    command = Command.request(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "billing"})
    assert unknown_code_reply(command, PEER).remark == " request type 203 not supported"
    assert caplog.messages == [
        (
            f"refusing GET_CONSUMER_CONNECTION_LIST (203) from {PEER}, consumerGroup billing: "
            "this server has no handler for it"
        )
    ]
