"""What is installed is what is in the tree."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS: dict[str, str] = PROJECT["tool"]["setuptools"]["package-dir"]
SOURCES = ("pyproject.toml", "README.md", "LICENSE", *sorted({name.partition("/")[0] for name in FOLDERS.values()}))


def package_files() -> set[str]:
    """Return the names that the files of the tree have in the wheel."""
    return {
        f"{package.replace('.', '/')}/{path.name}".lstrip("/")
        for package, folder in FOLDERS.items()
        for path in (ROOT / folder).iterdir()
        if path.suffix == ".py" or path.name == "py.typed"
    }


def run_pip(python: pathlib.Path | str, *arguments: str) -> None:
    """Run pip, and show what it said when it fails."""
    command = [str(python), "-m", "pip", "--disable-pip-version-check", *arguments]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Build the wheel from a copy of the sources, since a build leaves files beside them."""
    copy = tmp_path_factory.mktemp("sources")
    for name in SOURCES:
        source, target = ROOT / name, copy / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    run_pip(sys.executable, "wheel", "--quiet", "--no-deps", "--wheel-dir", str(copy / "dist"), str(copy))
    return next((copy / "dist").glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[pathlib.Path]:
    """Install the wheel, without extras, into an environment of its own, and return the folder of its programs."""
    environment = tmp_path_factory.mktemp("environment") / "venv"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    python = environment / "bin" / "python"
    run_pip(python, "install", "--quiet", "--no-compile", "--constraint", str(ROOT / "constraints.txt"), str(wheel))
    yield environment / "bin"
    shutil.rmtree(environment)


def test_each_folder_is_a_package():
    """Each folder of modules is named in `packages` and `package-dir` and linked in `typings`."""
    folders = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert {name for name in FOLDERS.values() if not name.startswith("src")} == folders
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == set(FOLDERS) - {""}  # which is for single modules
    links = {path.name: path.resolve() for path in (ROOT / "typings" / "rocketlet").iterdir() if path.is_dir()}
    assert links == {folder: ROOT / folder for folder in folders}


def test_wheel_holds_the_tree(wheel: pathlib.Path):
    """The wheel holds each module of the tree and `py.typed`, and nothing beside them."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == package_files()


def test_wheel_carries_the_licence(wheel: pathlib.Path):
    """The licence text travels with the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        assert [name for name in archive.namelist() if name.endswith("/licenses/LICENSE")]


def test_constraints_are_plain_pins():
    """`constraints.txt` holds `name==version` lines only, and pins what the package asks for."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    names = {line.partition("==")[0].lower() for line in lines}
    assert all("==" in line and "/" not in line and "@" not in line for line in lines)
    asked = {text.partition(">")[0].partition("[")[0] for text in PROJECT["project"]["dependencies"]}
    assert asked <= names


def test_installed_command_starts_a_broker(installed: pathlib.Path, tmp_path: pathlib.Path):
    """`rocketlet up` of the installed wheel gets ready and stops at SIGTERM with exit code 0."""
    command = [installed / "rocketlet", "up", "--ephemeral", "--namesrv-port", "0", "--broker-port", "0"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        ready = process.stdout.readline()
        os.kill(process.pid, signal.SIGTERM)
        _, errors = process.communicate()
    assert ready.startswith("ready namesrv=127.0.0.1:"), errors
    assert errors == ""
    assert process.returncode == 0


def test_plugin_of_the_installed_package_needs_no_pytest_to_import(installed: pathlib.Path):
    """The installed package has no test tools; `rocketlet.testing` can be imported all the same."""
    subprocess.run([installed / "python", "-c", "import rocketlet.testing"], check=True)
