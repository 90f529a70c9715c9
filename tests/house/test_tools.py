"""The set-up: what it asks for, and what it says when it cannot have it."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parent.parent.parent
NEEDED = ("bash", "dirname", "env", "id", "sed")  # by .ci/tools itself


@pytest.fixture
def bare_path(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return the only folder of programs that a run of `.ci/tools` sees: no apt, no Java, no Go."""
    for name in NEEDED:
        found = shutil.which(name)
        assert found is not None
        (tmp_path / name).symlink_to(found)
    return tmp_path


def run_tools(path: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `.ci/tools` with programs from one folder only."""
    environment = {"PATH": str(path), "HOME": os.environ.get("HOME", "/")}
    command = [ROOT / ".ci" / "tools", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def add_program(folder: pathlib.Path, name: str, printed: str) -> None:
    """Put a program into a folder that prints something to stderr, as Java does with its version."""
    program = folder / name
    program.write_text(f"#!/usr/bin/env bash\necho '{printed}' >&2\n")
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("tool", "named"),
    [
        ("java", "openjdk-17-jre-headless"),
        ("jdk", "openjdk-17-jdk-headless"),
        ("maven", "maven"),
        ("go", "golang-go"),
        ("systemd", "the package systemd"),
    ],
)
def test_missing_tool_is_named_in_one_sentence(bare_path: pathlib.Path, tool: str, named: str):
    """A tool that is missing and cannot be installed ends with one sentence that says what to install."""
    run = run_tools(bare_path, tool)
    assert run.returncode == 1
    assert run.stderr.count("\n") == 1
    assert named in run.stderr


def test_missing_tools_are_passed_over_when_only_tried(bare_path: pathlib.Path):
    """With `--try` each missing tool is named, and the set-up goes on."""
    run = run_tools(bare_path, "--try", "java", "go")
    assert run.returncode == 0
    assert run.stderr.count("\n") == 2


def test_missing_python_is_named(tmp_path: pathlib.Path, bare_path: pathlib.Path):
    """Without a Python of 3.11 or newer the set-up says so."""
    checkout = tmp_path / "checkout" / ".ci"
    checkout.mkdir(parents=True)
    shutil.copy(ROOT / ".ci" / "tools", checkout)
    run = subprocess.run(
        [checkout / "tools", "venv"], env={"PATH": str(bare_path)}, capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    assert run.stderr.startswith("rocketlet needs Python 3.11 or newer")


@pytest.mark.parametrize(
    ("printed", "code"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 0),
        ('java version "21" 2023-09-19 LTS', 0),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx512m\nopenjdk version "25.0.1"', 0),
        ('openjdk version "11.0.2" 2019-01-15', 1),
        ('java version "1.8.0_392"', 1),
        ("no runtime", 1),
    ],
)
def test_java_must_be_17(bare_path: pathlib.Path, printed: str, code: int):
    """Java 17 or newer will do, an older one is as good as none."""
    add_program(bare_path, "java", printed)
    assert run_tools(bare_path, "java").returncode == code


def test_java_home_comes_first(bare_path: pathlib.Path):
    """The Java of JAVA_HOME is the one that counts."""
    (bare_path / "home" / "bin").mkdir(parents=True)
    add_program(bare_path, "java", 'openjdk version "11.0.2"')
    add_program(bare_path / "home" / "bin", "java", 'openjdk version "17.0.15"')
    environment = {"PATH": str(bare_path), "JAVA_HOME": str(bare_path / "home")}
    assert subprocess.run([ROOT / ".ci" / "tools", "java"], env=environment, check=False).returncode == 0


def test_help_lists_the_targets():
    """`make help` explains each target that the Makefile calls phony."""
    phony = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)[0].split()
    printed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert re.findall(r"^  make ([\w-]+) +\w", printed, flags=re.MULTILINE) == phony
