"""The guide's way to a secured cluster, command by command."""

import os
import pathlib
import re
import shlex
import subprocess
from collections.abc import Callable

import pytest
from command_line import COMMAND

GUIDE = pathlib.Path(__file__).parent.parent.parent / "docs" / "guide" / "security.md"
BLOCK = re.compile(r"## A secured cluster, from nothing\n.*?```console\n(.*?)```", re.DOTALL)
MORE = {"up": ["--store", "store", "--namesrv-port", "0", "--broker-port", "0"], "down": ["--store", "store"]}
Shell = Callable[..., subprocess.CompletedProcess[str]]


def steps() -> list[str]:
    """Return the commands of the guide, each with the lines that follow it."""
    found = BLOCK.search(GUIDE.read_text())
    assert found is not None
    return [step.rstrip("\n") for step in found[1].removeprefix("$ ").split("\n$ ")]


@pytest.fixture
def shell(tmp_path: pathlib.Path) -> Shell:
    """Return what runs a command as a shell does that stays where it is."""
    environment = dict(os.environ)

    def run(step: str) -> subprocess.CompletedProcess[str]:
        words = shlex.split(step)
        if words[0] == "export":
            environment.update({name: value for name, _, value in (word.partition("=") for word in words[1:])})
            return subprocess.CompletedProcess(words, 0, "", "")
        ours = [*COMMAND, *words[1:], *MORE.get(words[1], ())]
        words = ours if words[0] == "rocketlet" else ["bash", "-c", step]
        ended = subprocess.run(
            words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120
        )
        if ready := re.search(r"ready namesrv=(\S+)", ended.stdout):
            environment["NAMESRV_ADDR"] = ready[1]
        return ended

    return run


@pytest.mark.feature("A5", "A9", "A12")
def test_the_guide_s_commands_secure_a_cluster(shell: Shell) -> None:
    """Each succeeds; behind them who has no right, no secret or no TLS is turned away."""
    *before, down = steps()
    assert down == "rocketlet down"
    assert sum(step.startswith("rocketlet") for step in (*before, down)) <= 10
    tls = "--tls --tls-trust tls/ca.pem"
    shop = "--access-key shop --secret-key"
    try:
        for step in before:
            ended = shell(step)
            assert ended.returncode == 0, (step, ended.stdout, ended.stderr)
        denied = shell(f"rocketlet message send other x {shop} shop-secret {tls}")
        assert "no permission to access Topic:other" in denied.stderr
        assert "check signature failed" in shell(f"rocketlet message send orders x {shop} wrong {tls}").stderr
        assert "--tls" in shell("rocketlet message send orders x").stderr
    finally:
        ended = shell(down)
    assert ended.returncode == 0, ended.stderr
