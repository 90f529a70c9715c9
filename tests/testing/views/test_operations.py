"""Names of operations: complete, one for each code, and what is misspelt is told."""

import pathlib
from typing import Any, cast

import pytest

from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.namesrv.config import NameServerConfig
from rocketlet.namesrv.server import NameServer
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.transport.connection import RequestHandlers
from rocketlet.remoting.transport.event_loop import LoopClock
from rocketlet.testing.views.operations import codes_of, operation_name


async def test_every_code_that_is_answered_has_a_name(tmp_path: pathlib.Path) -> None:
    """Whatever a broker or a name server answers is called by a word, and the word leads back to the code."""
    served: list[RequestHandlers] = []

    def collect(handlers: RequestHandlers) -> RequestHandlers:
        served.append(handlers)
        return handlers

    config = BrokerConfig.from_java({"listenPort": "0", "brokerName": "a", "storePathRootDir": str(tmp_path)})
    async with (
        NameServer(NameServerConfig(port=0), LoopClock(), around=collect),
        Broker(config, LoopClock(), around=collect),
    ):
        nameserver, broker = served
        rare = cast("Any", broker.fallback).__self__.handlers
        codes = {*nameserver.by_code, *broker.by_code, *rare}
    assert len(codes) > 100
    for code in codes:
        name = operation_name(code)
        assert not name.isdecimal()
        assert code in codes_of(name)


def test_words_stand_for_all_their_codes() -> None:
    """A send is any of three requests, a pull any of two."""
    assert codes_of("send") == {RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}
    assert codes_of("pull") == {RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE}
    assert codes_of("route") == {RequestCode.GET_ROUTEINFO_BY_TOPIC}


@pytest.mark.parametrize(
    ("name", "meant"), [("sends", "send"), ("comit_offset", "commit_offset"), ("hearbeat", "heartbeat")]
)
def test_misspelt_operation_names_the_nearest(name: str, meant: str) -> None:
    """An operation that does not exist is an error that says which one is meant."""
    with pytest.raises(ValueError, match=f"no operation is called '{name}'; did you mean {meant}\\?"):
        codes_of(name)
