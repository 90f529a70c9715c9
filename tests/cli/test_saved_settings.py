"""Settings that administrators have changed, at the next start of the command."""

import pathlib
import subprocess

from command_line import COMMAND, Running, Start

from rocketlet.common.codes import ResponseCode
from rocketlet.common.settings import parse_java_properties
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.transport.client import ConnectionPool
from rocketlet.remoting.transport.event_loop import LoopClock

UP = ("up", "--store", "store", "--namesrv-port", "0", "--broker-port", "0")


async def ask(running: Running, code: RequestCode, body: bytes = b"") -> Command:
    """Send a request to the broker."""
    async with ConnectionPool(LoopClock()) as pool:
        return await pool.request(running.addresses["broker"], Command.request(code, None, body), 5_000)


async def change(running: Running, body: bytes) -> str:
    """Change settings and stop; return what was logged."""
    assert (await ask(running, RequestCode.UPDATE_BROKER_CONFIG, body)).code == ResponseCode.SUCCESS
    return running.stop()[2]


async def told(running: Running) -> dict[str, str]:
    """Return the settings of the broker."""
    return parse_java_properties((await ask(running, RequestCode.GET_BROKER_CONFIG)).body.decode())


def listed(tmp_path: pathlib.Path, *arguments: str) -> list[list[str]]:
    """Return the words that ``--print-config`` begins its lines with."""
    done = subprocess.run(
        [*COMMAND, *UP, *arguments, "--print-config"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    return [line.split()[:2] for line in done.stdout.splitlines()]


async def test_changes_are_kept_in_the_store(start: Start, tmp_path: pathlib.Path) -> None:
    """The next start, and --print-config, have them; what an option says wins, and the log tells."""
    await change(start(*UP), b"brokerPermission=4\ntraceOn=false\n")
    assert ["brokerPermission", "4"] in listed(tmp_path)
    again = start(*UP, "--set", "brokerPermission=6")
    settings = await told(again)
    assert (settings["brokerPermission"], settings["traceOn"]) == ("6", "false")
    assert "saved settings brokerPermission in " in again.stop()[2]


async def test_changes_are_kept_in_the_given_file(start: Start, tmp_path: pathlib.Path) -> None:
    """It is found again from whatever directory; the store has no file then."""
    file = tmp_path / "broker.conf"
    file.write_text("# mine\nbrokerPermission=6\n")
    await change(start(*UP, "-c", "broker.conf"), b"brokerPermission=4\ntraceOn=false\n")
    assert file.read_text() == "# mine\nbrokerPermission=4\ntraceOn=false\n"
    assert not (tmp_path / "store/config/broker.properties").exists()
    again = start(*UP, "-c", str(file))
    assert (await told(again))["brokerPermission"] == "4"


async def test_brokers_with_one_file_keep_their_own_changes(start: Start, tmp_path: pathlib.Path) -> None:
    """A change of one of several brokers does not change what all are started with."""
    file = tmp_path / "broker.conf"
    file.write_text("brokerPermission=6\n")
    running = start(*UP, "-c", "broker.conf", "--brokers", "2")
    first = Running(running.process, running.ready.partition(",")[0])
    await change(first, b"traceOn=false\n")
    assert file.read_text() == "brokerPermission=6\n"
    assert (tmp_path / "store/broker-a/config/broker.properties").read_text() == "traceOn=false\n"
    assert not (tmp_path / "store/broker-b/config/broker.properties").exists()
