"""What is said of brokers that do not answer."""

import logging

import pytest

from rocketlet.client.session.session import OutageLog
from rocketlet.common.errors import RemotingError
from rocketlet.remoting.codec.codes import ResponseCode
from rocketlet.remoting.codec.command import Command


def test_outage_is_said_once_until_the_broker_answers(caplog: pytest.LogCaptureFixture) -> None:
    """Each broker by itself; an answer ends its outage, whatever it says."""
    caplog.set_level(logging.INFO)
    outages, gone = OutageLog(), RemotingError("gone")
    for address in ("a:1", "a:1", "b:1"):
        outages.begin(address, gone)
    outages.heed("a:1", Command.response(ResponseCode.SUCCESS))
    outages.heed("a:1", Command.response(ResponseCode.SYSTEM_ERROR, "busy"))
    outages.begin("a:1", gone)
    assert caplog.messages == [
        "broker a:1 does not answer: gone",
        "broker b:1 does not answer: gone",
        "broker a:1 answers again",
        "broker a:1 answered a heartbeat with 1: busy",
        "broker a:1 does not answer: gone",
    ]
