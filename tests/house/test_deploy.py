"""The recipes of `examples/deploy`: their lines are run, with a temporary directory for a container's root."""

import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

import click
import pytest

from rocketlet.cli.main import rocketlet

ROOT = pathlib.Path(__file__).parent.parent.parent
DEPLOY = ROOT / "examples" / "deploy"
FREE_PORTS = ("--namesrv-port", "0", "--broker-port", "0")
PROGRAM = "/opt/rocketlet/bin/rocketlet"


class Instruction(NamedTuple):
    """A line of a Dockerfile."""

    name: str
    text: str


def read_recipe() -> list[Instruction]:
    """Return the instructions of the Dockerfile, in order."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [Instruction(*line.split(maxsplit=1)) for line in text.splitlines() if line.strip()]


RECIPE = read_recipe()


def words_of(name: str) -> list[str]:
    """Return the list that an instruction has once."""
    (text,) = [each.text for each in RECIPE if each.name == name]
    return json.loads(text[text.index("[") :])


class Image(NamedTuple):
    """What the recipe has built, below a directory."""

    root: pathlib.Path

    def place(self, text: str) -> str:
        """Return a command, with paths of the container below the directory."""
        return re.sub(r"(?<![\w.])/(?=(?:opt|src|var)\b)", f"{self.root}/", text)

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a container: those of the recipe, and nothing of ours."""
        usual = os.pathsep.join([str(pathlib.Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"])
        pairs = [shlex.split(each.text)[0].split("=", 1) for each in RECIPE if each.name == "ENV"]
        return {name: self.place(text).replace("$PATH", usual) for name, text in [("PATH", usual), *pairs]}

    def start(self, words: list[str], **variables: str) -> "subprocess.Popen[str]":
        """Start a command of the recipe."""
        command = [self.place(word) for word in words]
        environment = {**self.environment, **variables}
        command[0] = shutil.which(command[0], path=environment["PATH"]) or command[0]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=environment, cwd=self.root, stdout=pipe, stderr=pipe, text=True)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    """Do what the recipe says: copy the checkout, run its RUN lines."""
    built = Image(tmp_path_factory.mktemp("image"))
    directory = built.root
    ignored = [line.removeprefix("**/") for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()]
    for name, text in RECIPE:
        if name == "WORKDIR":
            directory = pathlib.Path(built.place(text))
        elif (name, text) == ("COPY", ". ."):
            shutil.copytree(ROOT, directory, ignore=shutil.ignore_patterns(*ignored))
        elif name == "COPY":
            source, target = text.split()[-2:]
            assert source == target, "both stages have it at the same place, which is in the first line of programs"
            assert pathlib.Path(built.place(source)).exists()
        elif name == "RUN":
            ended = subprocess.run(
                ["sh", "-c", built.place(text)],
                cwd=directory,
                env={**built.environment, "TMPDIR": os.environ["TMPDIR"]},
                capture_output=True,
                text=True,
                check=False,
            )
            assert ended.returncode == 0, ended.stdout + ended.stderr
    yield built
    shutil.rmtree(built.root)


def compose_words() -> list[str]:
    """Return the command of the compose file, for clients on this machine."""
    command = (DEPLOY / "compose.yaml").read_text().partition("command:")[2].partition("ports:")[0]
    words = re.findall(r"^      - (\S+)$", command, re.MULTILINE)
    return [word.replace("${ROCKETLET_ADVERTISE:-rocketlet}", "localhost") for word in words]


@pytest.mark.parametrize("words", [words_of("CMD"), compose_words()], ids=["image", "compose"])
def test_image_starts_is_healthy_and_stops(image: Image, words: list[str]) -> None:
    """It serves at all addresses, its health check tells when it does, its signal stops it cleanly."""
    assert [each.text for each in RECIPE if each.name == "STOPSIGNAL"] == ["SIGTERM"]
    health = words_of("HEALTHCHECK")
    with image.start([*words_of("ENTRYPOINT"), *words, *FREE_PORTS]) as container:
        assert container.stdout is not None
        assert container.stdout.readline().startswith("ready namesrv=")
        with image.start(health) as check:
            assert check.wait() == 0
        container.send_signal(signal.SIGTERM)
        said = container.communicate()[1]
        assert container.returncode == 0
    assert f"messages are kept in {image.root}/var/lib/rocketlet\n" in said
    with image.start(health) as check:
        assert check.wait() == 1


def test_image_is_of_nobody_in_particular() -> None:
    """It runs without root, by a number that owns the volume; the last stage brings neither compiler nor sources."""
    by_name = {each.name: each.text for each in RECIPE}
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", by_name["USER"])
    assert f"COPY --from=build --chown={by_name['USER']} {by_name['VOLUME']} {by_name['VOLUME']}" in (
        f"{each.name} {each.text}" for each in RECIPE
    )
    assert by_name["FROM"].endswith("-slim")
    assert {"9876", "10911"} == set(by_name["EXPOSE"].split())


def test_compose_file_uses_the_image() -> None:
    """Its options are known, its health check is that of the image, its volume and ports are those that it has."""
    text, words = (DEPLOY / "compose.yaml").read_text(), compose_words()
    command = rocketlet.get_command(click.Context(rocketlet), words[0])
    assert command is not None
    context = command.make_context("up", words[1:])
    assert context.params["topics"] == {"orders": 8}
    assert json.loads(re.findall(r"^      test: (.*)$", text, re.MULTILINE)[0]) == ["CMD", *words_of("HEALTHCHECK")]
    assert re.findall(r'^      - "127.0.0.1:(\d+):\1"$', text, re.MULTILINE) == ["9876", "10911"]
    assert "- store:/var/lib/rocketlet" in text
    assert "dockerfile: examples/deploy/Dockerfile" in text


@pytest.fixture
def unit(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return the unit with the program of this environment, since systemd looks whether it is there."""
    path = tmp_path / "rocketlet.service"
    program = str(pathlib.Path(sys.executable).parent / "rocketlet")
    text = (DEPLOY / "rocketlet.service").read_text()
    assert text.count(f"={PROGRAM} ") == 1
    path.write_text(text.replace(f"={PROGRAM} ", f"={program} "))
    return path


def analyze(*arguments: str | pathlib.Path) -> str:
    """Return what systemd says of a unit, which it must accept."""
    if sys.platform != "linux":
        pytest.skip("platform: systemd is for Linux")
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze: .ci/tools systemd")
    run = subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout + run.stderr


def test_unit_is_sound(unit: pathlib.Path) -> None:
    """Systemd has nothing to say of it."""
    assert analyze("verify", "--man=no", unit) == ""


def test_unit_is_hardened(unit: pathlib.Path) -> None:
    """What it exposes is little in the eyes of systemd, whose scale ends at 10."""
    analyze("security", "--offline=true", "--no-pager", "--threshold=20", unit)


def test_unit_starts_and_tells_when_it_is_ready(
    unit: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its line serves the directory that systemd makes, tells systemd when clients can connect, and stops cleanly."""
    (line,) = re.findall(r"^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)
    words = shlex.split(line.replace("%S", str(tmp_path)).replace("$ROCKETLET_OPTIONS", shlex.join(FREE_PORTS)))
    (tmp_path / "rocketlet").mkdir()
    monkeypatch.chdir(tmp_path)  # the names of sockets are short
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("notify")
        environment = {"PATH": "/usr/bin:/bin", "NOTIFY_SOCKET": "notify"}
        with subprocess.Popen(
            words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as service:
            assert manager.recv(100) == b"READY=1"
            service.terminate()
            assert manager.recv(100) == b"STOPPING=1"
            said = service.communicate()[1]
            assert service.returncode == 0, said
    assert (tmp_path / "rocketlet" / "commitlog").exists()
