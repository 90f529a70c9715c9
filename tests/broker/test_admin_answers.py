"""Requests of administrators are answered by handlers that are built when the first of them comes."""

import pathlib

import pytest
from memory_connection import connect_in_memory
from served import observe

import rocketlet.broker.server as broker_server
from rocketlet.broker.components import AdminAnswers
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.codes import ResponseCode
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.frames import encode_command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.transport.connection import Handler, RequestHandlers
from rocketlet.testing.manual_clock import ManualClock

UNKNOWN_CODE = 30_000


def respond(command: Command, _: object) -> Command:
    """Answer SUCCESS."""
    return Command.response(ResponseCode.SUCCESS, f"handled {command.code}")


def test_handlers_are_built_once() -> None:
    """The first request has them built, whether one of them answers it or none."""
    built: list[int] = []

    def build() -> dict[int, Handler]:
        built.append(1)
        return {RequestCode.GET_BROKER_CONFIG: respond}

    answers = AdminAnswers(build)
    connection, transport = connect_in_memory(RequestHandlers({}, answers.answer), ManualClock())
    assert (built, repr(answers)) == ([], "<AdminAnswers not built>")
    for code, told in ((UNKNOWN_CODE, b'"code":3'), (RequestCode.GET_BROKER_CONFIG, b"handled 26")) * 2:
        connection.data_received(encode_command(Command.request(code, None)))
        assert told in transport.last_write
    assert (built, repr(answers)) == ([1], "<AdminAnswers 1>")


async def test_no_code_has_two_handlers(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What administrators ask is nothing that clients ask, so no handler hides another."""
    observed = observe(monkeypatch, broker_server)
    settings = {"storePathRootDir": str(tmp_path / "store"), "listenPort": "0"}
    async with broker_server.Broker(BrokerConfig.from_java(settings), ManualClock()):
        handlers = observed[0].handlers
        late = getattr(handlers.fallback, "__self__", None)
        assert isinstance(late, AdminAnswers)
        assert len(late.handlers) > len(handlers.by_code)
        assert not late.handlers.keys() & handlers.by_code.keys()
