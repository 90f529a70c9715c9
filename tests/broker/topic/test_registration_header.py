"""What a broker says of itself when it registers and unregisters, as a name server that takes anything hears it."""

from collections.abc import AsyncGenerator

import pytest
from msgspec.structs import replace

from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.codes import ResponseCode
from rocketlet.common.ids import format_address
from rocketlet.common.properties import crc31
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.transport.connection import Connection, RequestHandlers
from rocketlet.remoting.transport.server import RemotingServer
from rocketlet.testing.manual_clock import ManualClock


@pytest.fixture
def told() -> list[Command]:
    """Return what the name server has been told."""
    return []


@pytest.fixture
async def settings(settings: dict[str, str], told: list[Command], clock: ManualClock) -> AsyncGenerator[dict[str, str]]:
    """Return settings with a name server that says yes to all."""

    def agree(command: Command, _connection: Connection) -> Command:
        told.append(command)
        return Command.response(ResponseCode.SUCCESS)

    async with RemotingServer("127.0.0.1", 0, RequestHandlers(fallback=agree), clock) as server:
        yield {**settings, "namesrvAddr": format_address(*server.address)}


@pytest.mark.parametrize(
    ("ha_port", "advertised", "host", "follows"),
    [
        (0, ("", 0), "127.0.0.1", "true"),
        (7, ("", 0), "127.0.0.1", "true"),
        (0, ("192.0.2.7", 0), "192.0.2.7", "false"),
        (0, ("192.0.2.7", 99), "192.0.2.7", "false"),
    ],
)
async def test_broker_says_who_it_is(
    ha_port: int,
    advertised: tuple[str, int],
    host: str,
    follows: str,
    settings: dict[str, str],
    told: list[Command],
    clock: ManualClock,
) -> None:
    """Its addresses, that of replicas one port further unless one is set, and whether any way to it will do."""
    config = BrokerConfig.from_java({**settings, "haListenPort": str(ha_port)})
    config = replace(config, advertised_host=advertised[0], advertised_port=advertised[1])
    async with Broker(config, clock) as broker:
        bound = broker.advertised.bound[1]
    names = {"brokerName": "broker-a", "clusterName": "cluster-a", "brokerId": "0"}
    identity = {**names, "brokerAddr": f"{host}:{advertised[1] or bound}"}
    first, last = told[0], told[-1]
    assert (first.code, last.code) == (RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER)
    assert (
        first.ext.items()
        >= {
            **identity,
            "haServerAddr": f"{host}:{ha_port or bound + 1}",
            "rocketletFollowsClients": follows,
            "bodyCrc32": str(crc31(first.body)),
        }.items()
    )
    assert last.ext == identity
