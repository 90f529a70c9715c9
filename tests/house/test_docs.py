"""What the documentation shows is run.

python   as a program; as tests when it defines some; of the guide to Spark, by ``tests/spark/test_guide.py``
java     compiled and run with the official client
go       the same
console  options of each `rocketlet` command are known

A block whose first line is a comment with the path of an example is a piece of that file, which tests run as a whole.
"""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections import Counter
from typing import NamedTuple

import click
import pytest
from interop.toolchain import GO_SOURCES, MissingToolError, build_go, build_java

from rocketlet.cli.main import COMMANDS, rocketlet
from rocketlet.client import Message, Producer
from rocketlet.testing import RocketmqBroker

ROOT = pathlib.Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SPARK_PAGE = "docs/guide/spark.md"
NAMESERVER = "127.0.0.1:9876"
BLOCK_OR_HEADING = re.compile(r"^```(\w+)\n(.*?)^```$|^#+ ([^\n]*)$", flags=re.MULTILINE | re.DOTALL)


PIECE = re.compile(r"(?:#|//) (examples/\S+)\n")


class Snippet(NamedTuple):
    """A fenced block of a page; its place names the heading above it, and its number below it from the second on."""

    place: str
    language: str
    text: str

    @property
    def is_piece(self) -> bool:
        """Whether it is a piece of an example."""
        return PIECE.match(self.text) is not None


def find_snippets() -> list[Snippet]:
    """Return the blocks of all pages."""
    found: list[Snippet] = []
    for page in PAGES:
        counts: Counter[str] = Counter()
        place = ""
        for match in BLOCK_OR_HEADING.finditer(page.read_text()):
            language, text, heading = match.groups()
            if heading is not None:
                place = f"{page.relative_to(ROOT)}#{heading}"
                continue
            counts[place] += 1
            found.append(Snippet(f"{place}-{counts[place]}" if counts[place] > 1 else place, language, text))
    return found


SNIPPETS = find_snippets()


def snippets(language: str) -> pytest.MarkDecorator:
    """Run a test for each block in a language."""
    chosen = [snippet for snippet in SNIPPETS if snippet.language == language and not snippet.is_piece]
    if language == "python":
        chosen = [snippet for snippet in chosen if not snippet.place.startswith(SPARK_PAGE)]
    return pytest.mark.parametrize("snippet", chosen, ids=[snippet.place for snippet in chosen])


PIECES = [snippet for snippet in SNIPPETS if snippet.is_piece]


def run(command: list[str | pathlib.Path], directory: pathlib.Path, nameserver: str = "") -> str:
    """Run a program in a directory, where clients find the name server, and return what it printed."""
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "NAMESRV_ADDR": nameserver}
    ended = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture
async def broker(rocketmq_broker: RocketmqBroker) -> RocketmqBroker:
    """Return a broker whose topic of the documentation holds a message."""
    async with Producer("docs", nameserver=rocketmq_broker.nameserver) as producer:
        await producer.send(Message("orders", b"hello", tags="paid"))
    return rocketmq_broker


def test_languages_are_known():
    """Each block is of a language that is run here, or is plain text."""
    assert {snippet.language for snippet in SNIPPETS} <= {"python", "java", "go", "console", "text"}


@pytest.mark.parametrize("snippet", PIECES, ids=[snippet.place for snippet in PIECES])
def test_pieces_are_those_of_the_examples(snippet: Snippet):
    """A piece stands in the example that it names, however far it is indented there."""
    match = PIECE.match(snippet.text)
    assert match is not None
    indents = ("", "    ", "\t")
    pieces = [textwrap.indent(snippet.text[match.end() :], indent) for indent in indents]
    text = f"\n{(ROOT / match[1]).read_text()}"
    assert any(f"\n{piece}" in text for piece in pieces)


@snippets("python")
def test_python_runs(snippet: Snippet, broker: RocketmqBroker, tmp_path: pathlib.Path):
    """A Python block runs, against a broker where it names one or the environment, on a store where it names one."""
    if "pyspark" in snippet.text and not shutil.which("java") and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs Java 17")
    text = snippet.text.replace(NAMESERVER, broker.nameserver).replace('"STORE"', repr(str(broker.store)))
    (tmp_path / "test_snippet.py").write_text(text)
    if "def test_" in text:
        (tmp_path / "pytest.ini").write_text(
            "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
        )
        run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], tmp_path, broker.nameserver)
    else:
        run([sys.executable, "test_snippet.py"], tmp_path, broker.nameserver)


@snippets("java")
def test_java_runs(snippet: Snippet, broker: RocketmqBroker, tmp_path: pathlib.Path):
    """A Java block compiles and runs with the official client."""
    try:
        class_path = build_java()
    except MissingToolError as missing:
        pytest.skip(str(missing))
    (match,) = re.findall(r"public class (\w+)", snippet.text)
    text = snippet.text.replace(NAMESERVER, broker.nameserver)
    # On a busy machine, a Java process that has just begun may not have sent in the three seconds that are usual.
    patience = "producer.setSendMsgTimeout(60_000); producer.setMqClientApiTimeout(60_000);"
    text = text.replace("producer.start();", f"{patience} producer.start();")
    (tmp_path / f"{match}.java").write_text(text)
    options = ["-XX:-UsePerfData", "-XX:TieredStopAtLevel=1", f"-Duser.home={tmp_path}", "-cp", class_path]
    assert "sendStatus=SEND_OK" in run(["java", *options, f"{match}.java"], tmp_path)


@snippets("go")
def test_go_runs(snippet: Snippet, broker: RocketmqBroker, tmp_path: pathlib.Path):
    """A Go block compiles and runs with the official client."""
    try:
        build_go()
    except MissingToolError as missing:
        pytest.skip(str(missing))
    for name in ("go.mod", "go.sum"):
        shutil.copy(GO_SOURCES / name, tmp_path)
    (tmp_path / "main.go").write_text(snippet.text.replace(NAMESERVER, broker.nameserver))
    assert "sendStatus=0" in run(["go", "run", "."], tmp_path)


@snippets("console")
def test_commands_are_known(snippet: Snippet):
    """The commands of a console block exist and take the options that they are given."""
    for line in snippet.text.splitlines():
        program, *arguments = shlex.split(line.removeprefix("$ "), comments=True) or [""]
        if line.startswith("$ ") and program == "rocketlet":
            assert arguments[0] in COMMANDS
            command = rocketlet.get_command(click.Context(rocketlet), arguments[0])
            assert command is not None
            command.make_context(arguments[0], arguments[1:])
