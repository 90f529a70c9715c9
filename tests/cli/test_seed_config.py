"""The usual four files of two masters with a slave each: all four run."""

import pathlib

import pytest
from command_line import Start

from rocketlet.remoting.bodies.body import decode_body
from rocketlet.remoting.bodies.route import TopicRouteData
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.transport.client import ConnectionPool
from rocketlet.remoting.transport.event_loop import LoopClock

FILE = """\
namesrvAddr={namesrv}
brokerClusterName=itzhai-com-cluster
brokerIP1=127.0.0.1
listenPort=0
brokerName={name}
brokerId={number}
deleteWhen=02
fileReservedTime=48
brokerRole={role}
flushDiskType=ASYNC_FLUSH
autoCreateTopicEnable=true
storePathRootDir={store}
"""


def write_file(directory: pathlib.Path, namesrv: str, name: str, role: str) -> str:
    """Write the file of a broker; return its name."""
    path = directory / f"{name}-{role}.properties"
    number = 1 if role == "SLAVE" else 0
    text = FILE.format(namesrv=namesrv, name=name, number=number, role=role, store=directory / path.stem)
    path.write_text(text)
    return path.name


async def brokers_of(nameserver: str, topic: str) -> dict[str, dict[int, str]]:
    """Return the brokers in a route by their names."""
    async with ConnectionPool(LoopClock()) as pool:
        request = Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        reply = await pool.request(nameserver, request, 5_000)
    return {data.broker_name: data.broker_addrs for data in decode_body(TopicRouteData, reply.body).broker_datas}


@pytest.mark.feature("H7")
async def test_two_masters_and_their_slaves(start: Start, tmp_path: pathlib.Path) -> None:
    """All four are known to both name servers, by the numbers in their files."""
    nameservers = [start("namesrv", "--namesrv-port", "0").addresses["namesrv"] for _ in range(2)]
    namesrv = ";".join(nameservers)
    brokers: dict[str, dict[int, str]] = {}
    for name in ("broker-1", "broker-2"):
        for number, role in enumerate(("ASYNC_MASTER", "SLAVE")):
            running = start("broker", "-c", write_file(tmp_path, namesrv, name, role))
            brokers.setdefault(name, {})[number] = running.addresses["broker"]
    for nameserver in nameservers:
        assert await brokers_of(nameserver, "TBW102") == brokers
