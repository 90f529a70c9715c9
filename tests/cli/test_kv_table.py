"""Where name servers keep their key-value table, which holds the configuration of ordered topics."""

import pathlib
import re
import subprocess
import sys

import pytest
from command_line import Running, Start

from rocketlet.common.codes import ResponseCode
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.transport.client import ConnectionPool
from rocketlet.remoting.transport.event_loop import LoopClock

ORDER = {"namespace": "ORDER_TOPIC_CONFIG", "key": "Ordered", "value": "broker-a:4"}


async def ask(running: Running, code: RequestCode) -> Command:
    """Put the order configuration of a topic, or get it."""
    async with ConnectionPool(LoopClock()) as pool:
        return await pool.request(running.addresses["namesrv"], Command.request(code, ORDER), 5_000)


async def put(running: Running) -> None:
    """Store the order configuration and stop the server."""
    assert (await ask(running, RequestCode.PUT_KV_CONFIG)).code == ResponseCode.SUCCESS
    code, out, said = running.stop()
    assert (code, out) == (0, "")
    assert all(line.startswith("rocketlet: ") for line in said.splitlines())


async def is_kept(running: Running) -> bool:
    """Tell whether the order configuration is known."""
    answer = await ask(running, RequestCode.GET_KV_CONFIG)
    return answer.ext.get("value") == ORDER["value"]


@pytest.mark.feature("N16")
@pytest.mark.parametrize("brokers", ["1", "2"])
async def test_table_of_up_is_in_the_store(start: Start, tmp_path: pathlib.Path, brokers: str) -> None:
    """Without a setting the order configuration survives a restart, below the directory of the store."""
    options = ("--store", "store", "--namesrv-port", "0", "--broker-port", "0", "--brokers", brokers)
    await put(start("up", *options))
    assert (tmp_path / "store" / "namesrv" / "kvConfig.json").exists()
    assert await is_kept(start("up", *options))


@pytest.mark.feature("N16")
async def test_table_of_a_name_server_is_kept_by_port(start: Start, tmp_path: pathlib.Path) -> None:
    """A name server at a port that was named finds its table again; at a free one it keeps none."""
    running = start("namesrv", "--namesrv-port", "0")
    port = running.addresses["namesrv"].rpartition(":")[2]
    await put(running)
    assert not (tmp_path / "data").exists()
    await put(start("namesrv", "--namesrv-port", port))
    assert (tmp_path / "data" / "rocketlet" / "namesrv" / port / "kvConfig.json").exists()
    assert await is_kept(start("namesrv", "--namesrv-port", port))


async def test_setting_names_another_file(start: Start, tmp_path: pathlib.Path) -> None:
    """`kvConfigPath` wins, also over `--ephemeral`, and the broker beside it does not warn of it."""
    options = ("up", "--ephemeral", "--namesrv-port", "0", "--broker-port", "0", "--set", "kvConfigPath=here.json")
    await put(start(*options))
    assert (tmp_path / "here.json").exists()
    assert await is_kept(start(*options))


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        (["up", "--store", "/data"], "/data/namesrv/kvConfig.json"),
        (["up"], "/home/ann/data/rocketlet/store/namesrv/kvConfig.json"),
        (["up", "--ephemeral"], ""),
        (["namesrv"], "/home/ann/data/rocketlet/namesrv/9876/kvConfig.json"),
        (["namesrv", "--set", "listenPort=7"], "/home/ann/data/rocketlet/namesrv/7/kvConfig.json"),
        (["namesrv", "--namesrv-port", "0"], ""),
    ],
)
def test_default_file(arguments: list[str], path: str) -> None:
    """`--print-config` tells where the table is kept."""
    command = [sys.executable, "-m", "rocketlet", *arguments, "--print-config"]
    environment = {"XDG_DATA_HOME": "/home/ann/data", "HOME": "/home/ann"}
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    (found,) = re.findall(r"^kvConfigPath +(?:(/\S+) +)?file that", printed, flags=re.MULTILINE)
    assert found == path
