"""The command `rocketlet` itself: what it imports, how it fails."""

import subprocess
import sys

import pytest

from rocketlet.cli.main import COMMANDS, main


def run_main(*arguments: str) -> int | str | None:
    """Run the command line in this process and return the exit code."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return ended.value.code


def modules_after(*arguments: str) -> set[str]:
    """Return the modules that a fresh process has loaded when it has run the command line."""
    code = (
        "import sys\nfrom rocketlet.cli.main import main\n"
        f"try: main({list(arguments)!r})\nexcept SystemExit: print('\\n' + ' '.join(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_lists_the_commands(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    """Without a command, and with `--help`, the commands are listed with a sentence each."""
    assert run_main(*arguments) == 0
    printed = capsys.readouterr().out
    assert all(f"\n  {name} " in printed for name in COMMANDS)


def test_version_is_printed(capsys: pytest.CaptureFixture[str]):
    """`--version` prints name and version."""
    assert run_main("--version") == 0
    assert capsys.readouterr().out == "rocketlet 0.1.0\n"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["dance"], "there is no command 'dance'; there are up, status, down, namesrv, "),
        (["nameserv"], "there is no command 'nameserv'; did you mean namesrv?"),
        (["--dance"], "--dance"),
        (["up", "--dance"], "--dance"),
        (["up", "extra"], "extra"),
        (["up", "--host"], "--host"),
        (["up", "--namesrv-port", "70000"], "--namesrv-port"),
        (["up", "--brokers", "0"], "--brokers"),
        (["up", "--brokers", "27"], "--brokers"),
        (["up", "--ephemeral", "--store", "x"], "--ephemeral and --store contradict each other"),
        (["up", "--set", "a=1", "--set", "a=2"], "--set"),
        (["up", "--log-level", "loud"], "--log-level"),
        (["up", "--set", "listenPort=x"], "listenPort"),
        (["up", "--set", "brokerRole=SLAVE"], "brokerId"),
        (["up", "--set", "mappedFileSizeCommitLog=0"], "mappedFileSizeCommitLog"),
        (["up", "-c", "no/such/file"], "no/such/file"),
        (["broker", "--set", "autoCreateTopicEnable=maybe"], "autoCreateTopicEnable"),
        (["namesrv", "--set", "listenPort=99999"], "listenPort"),
    ],
)
def test_bad_arguments_exit_2(arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]):
    """What cannot be used ends with exit code 2 and one line on stderr that names it."""
    asks_only = ["--print-config"] if len(arguments) > 1 else []
    assert run_main(*arguments[:1], *asks_only, *arguments[1:]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("rocketlet: ")
    assert named in captured.err


def test_command_line_imports_no_server():
    """The help imports neither the event loop nor a server, and nothing heavy."""
    heavy = {"asyncio", "uvloop", "numpy", "pyarrow", "rich", "rocketlet.broker.server", "rocketlet.store.files.files"}
    assert not heavy & modules_after("up", "--help")
