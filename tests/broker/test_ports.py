"""The three ports of a broker, and what becomes of it when one of them is taken."""

import socket
import sys
from collections.abc import Iterator

import pytest
from interop.servers import free_port
from raw_calls import open_caller
from replicas import play_slave

import rocketlet.broker.ports as broker_ports
from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.codes import ResponseCode
from rocketlet.common.errors import AddressInUseError, ConfigError
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.testing.manual_clock import ManualClock

SLAVE = {"brokerRole": "SLAVE", "brokerId": "1"}
SYNC_MASTER = {"brokerRole": "SYNC_MASTER"}
WAITING_MASTER = {"enableSlaveActingMaster": "true", "totalReplicas": "2"}


def listen(port: int = 0) -> socket.socket:
    """Return a socket that listens."""
    return socket.create_server(("127.0.0.1", port))


def port_of(address: str) -> int:
    """Return the port of an address."""
    return int(address.rpartition(":")[2])


@pytest.fixture(name="free_port")
def _free_port() -> int:
    """Return a port that is free with two below and one above."""
    return free_port(4) - 1


@pytest.fixture(params=[-2, 1])
def taken(request: pytest.FixtureRequest, free_port: int) -> Iterator[int]:
    """Take a neighbour of the free port."""
    with listen(free_port + request.param):
        yield free_port + request.param


@pytest.mark.feature("R8", "R24")
@pytest.mark.parametrize("role", [{}, SYNC_MASTER, SLAVE])
async def test_free_port_has_free_neighbours(broker: Broker, settings: dict[str, str], role: dict[str, str]) -> None:
    """The same requests are answered two ports below, and the log is given away one above; by slaves, too."""
    store = settings["storePathRootDir"] + "-other"
    config = BrokerConfig.from_java({**settings, **role, "storePathRootDir": store})
    async with Broker(config, ManualClock()) as other:
        for address in (broker.address, other.address):
            async with open_caller(f"127.0.0.1:{port_of(address) - 2}") as caller:
                answer = await caller.ask(RequestCode.GET_MIN_OFFSET, {"topic": "TBW102", "queueId": "0"})
                assert answer.code == ResponseCode.SUCCESS
            async with play_slave(address, -1) as slave:
                await slave.wait_end()


async def test_given_port_takes_its_neighbours(settings: dict[str, str], free_port: int) -> None:
    """All three are released by a stop."""
    for _ in range(2):
        async with Broker(BrokerConfig.from_java({**settings, "listenPort": str(free_port)}), ManualClock()) as broker:
            assert broker.address == f"127.0.0.1:{free_port}"
            for port in (free_port - 2, free_port, free_port + 1):
                with pytest.raises(OSError, match="in use"):
                    listen(port)


async def test_async_master_goes_on_without_a_neighbour(
    settings: dict[str, str], free_port: int, taken: int, caplog: pytest.LogCaptureFixture
) -> None:
    """It says which port is taken, and what slaves cannot do therefore."""
    config = BrokerConfig.from_java({**settings, "listenPort": str(free_port)})
    async with Broker(config, ManualClock()) as broker, open_caller(broker.address) as caller:
        assert (await caller.send()).code == ResponseCode.SUCCESS
    [said] = caplog.messages
    what = "cannot copy the log" if taken > free_port else "cannot copy the tables"
    assert f"127.0.0.1:{taken}" in said
    assert what in said


@pytest.mark.parametrize("role", [SYNC_MASTER, SLAVE, WAITING_MASTER])
async def test_who_needs_its_neighbours_does_not_start(
    settings: dict[str, str], free_port: int, taken: int, role: dict[str, str]
) -> None:
    """The error names the port; nothing is left listening."""
    with pytest.raises(AddressInUseError, match=str(taken)) as refused:
        async with Broker(BrokerConfig.from_java({**settings, **role, "listenPort": str(free_port)}), ManualClock()):
            pass
    assert refused.value.port == taken
    for port in {free_port - 2, free_port, free_port + 1} - {taken}:
        listen(port).close()


async def test_given_port_of_the_log(settings: dict[str, str], free_port: int) -> None:
    """An haListenPort that is given is taken, whatever the other ports are; one in use ends the start of a slave."""
    given = {**settings, "haListenPort": str(free_port)}
    async with Broker(BrokerConfig.from_java(given), ManualClock()):
        with pytest.raises(OSError, match="in use"):
            listen(free_port)
        other = {**given, **SLAVE, "storePathRootDir": settings["storePathRootDir"] + "-other"}
        with pytest.raises(AddressInUseError, match=str(free_port)):
            async with Broker(BrokerConfig.from_java(other), ManualClock()):
                pass


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is one loopback address")
async def test_address_for_slaves_alone(settings: dict[str, str], free_port: int) -> None:
    """The log is given away at haBindAddress and nowhere else, and slaves are told it unless brokerIP2 is given."""
    given = {**settings, "bindAddress": "127.0.0.2", "listenPort": str(free_port), "haBindAddress": "127.0.0.1"}
    async with Broker(BrokerConfig.from_java(given), ManualClock()) as broker, open_caller(broker.address) as caller:
        async with play_slave(f"127.0.0.1:{free_port}", -1) as slave:
            await slave.wait_end()
        with pytest.raises(ConnectionRefusedError):
            async with play_slave(f"127.0.0.2:{free_port}"):
                pass
        told = await caller.ask(RequestCode.EXCHANGE_BROKER_HA_INFO)
        assert told.ext["masterHaAddress"] == f"127.0.0.1:{free_port + 1}"
    config = BrokerConfig.from_java({**given, "brokerIP2": "192.0.2.9"})
    assert config.replication.told_ha_host == "192.0.2.9"


@pytest.mark.parametrize(
    ("key", "value"),
    [("haBindAddress", "192.0.2.1"), ("haBindAddress", "nowhere.invalid"), ("haAllowFrom", "10.0.0.1/24")],
)
async def test_settings_for_slaves_that_cannot_be_used(settings: dict[str, str], key: str, value: str) -> None:
    """They end the start also of a master that could go on without slaves, and are named."""
    with pytest.raises(ConfigError) as refused:
        async with Broker(BrokerConfig.from_java({**settings, key: value}), ManualClock()):
            pass
    assert refused.value.key == key


@pytest.mark.parametrize(
    ("port", "why"), [(65_535, "the port above it would be 65536"), (2, "the port below it would be 0")]
)
async def test_port_at_the_end_of_the_range(settings: dict[str, str], port: int, why: str) -> None:
    """It has no neighbour there, so no slave and no master with slaves can use it."""
    config = BrokerConfig.from_java({**settings, **SYNC_MASTER, "listenPort": str(port)})
    with pytest.raises(ConfigError, match=why):
        async with Broker(config, ManualClock()):
            pass


async def test_no_port_has_free_neighbours(settings: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """After so many tries that is said."""
    monkeypatch.setattr(broker_ports, "FAST_PORT_STEP", 0)
    with pytest.raises(ConfigError, match=r"no free port on 127\.0\.0\.1 has free neighbours"):
        async with Broker(BrokerConfig.from_java(settings), ManualClock()):
            pass
