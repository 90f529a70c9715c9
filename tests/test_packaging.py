"""What is installed is what is in the tree."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator

import pytest

from rocketlet.cli.main import VERSION
from rocketlet.common.properties import codecs

ROOT = pathlib.Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES: list[str] = PROJECT["tool"]["setuptools"]["packages"]
PARTS = sorted({name.split(".")[1] for name in PACKAGES if "." in name})
ROOT_MODULES = ("__init__.py", "__main__.py", "py.typed")
SOURCES = ("pyproject.toml", "MANIFEST.in", "README.md", "CHANGELOG.md", "LICENSE", "docs", *ROOT_MODULES, *PARTS)


def folder_of(package: str) -> pathlib.Path:
    """Return where the modules of a package are: the checkout is the package ``rocketlet``."""
    return ROOT.joinpath(*package.split(".")[1:])


def package_files() -> set[str]:
    """Return the names that the files of the tree have in the wheel."""
    modules = {
        f"{package.replace('.', '/')}/{path.name}"
        for package in PACKAGES
        for path in folder_of(package).iterdir()
        if path.suffix in (".py", ".pyi") or path.name == "py.typed"
    }
    return modules | {path.name for path in (ROOT / "spark" / "toplevel").glob("*.py")}


def run_pip(python: pathlib.Path | str, *arguments: str) -> None:
    """Run pip, and show what it said when it fails."""
    command = [str(python), "-m", "pip", "--disable-pip-version-check", *arguments]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Copy the sources, since a build leaves files beside them."""
    copy = tmp_path_factory.mktemp("sources")
    for name in SOURCES:
        source, target = ROOT / name, copy / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        else:
            shutil.copy(source, target)
    return copy


@pytest.fixture(scope="module")
def wheel(sources: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Build the wheel."""
    copy = sources
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


def test_each_folder_is_a_package() -> None:
    """Each folder of modules is named in `packages`, and nothing else is."""
    folders = {path.parent for part in PARTS for path in (ROOT / part).rglob("__init__.py")}
    assert sorted(folder_of(package) for package in PACKAGES) == sorted({ROOT, *folders})
    assert {path.parent.name for path in ROOT.glob("*/__init__.py")} == set(PARTS)


def test_no_module_is_loaded_twice() -> None:
    """Neither a folder of the checkout nor the checkout itself is imported under a second name."""
    names: dict[str, list[str]] = {}
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if path and name != "__mp_main__" and pathlib.Path(path).is_relative_to(ROOT) and ".venv" not in path:
            names.setdefault(str(pathlib.Path(path).resolve()), []).append(name)
    assert names, "the tests themselves are such modules"
    assert {path: loaded for path, loaded in names.items() if len(loaded) > 1} == {}
    inside = [name for path, (name,) in names.items() if pathlib.Path(path).relative_to(ROOT).parts[0] in PARTS]
    assert [name for name in inside if not name.startswith("rocketlet.")] == []
    assert ROOT.name not in sys.modules or ROOT.name == "rocketlet"


def test_wheel_holds_the_tree(wheel: pathlib.Path):
    """The wheel holds each module of the tree, `py.typed` and what the console shows, and nothing beside them.

    But for the compiled codecs, where a compiler is.
    """
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    built = {name for name in names if re.fullmatch(r"rocketlet/common/_(grpc_|header_)?codecs\..*\.so", name)}
    assert len(built) == (0 if codecs is None else 3)
    names -= built
    shown = {path for folder in ("static", "templates") for path in (ROOT / "console" / folder).iterdir()}
    assert names == package_files() | {f"rocketlet/{path.relative_to(ROOT).as_posix()}" for path in shown}


def test_wheel_needs_no_compiler(sources: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
    """Without one it has no compiled codecs, and Python does the same."""
    monkeypatch.setenv("CC", "false")
    copy = tmp_path / "sources"
    shutil.copytree(sources, copy, ignore=shutil.ignore_patterns("build", "dist", "*.egg-info", "*.c"))
    run_pip(sys.executable, "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(copy))
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert "rocketlet/common/record.py" in names
    assert not [name for name in names if name.endswith(".so")]


def test_wheel_carries_the_licence(wheel: pathlib.Path):
    """The licence text travels with the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        assert [name for name in archive.namelist() if name.endswith("/licenses/LICENSE")]


def test_description_stands_alone(wheel: pathlib.Path):
    """A registry shows the description without the tree, so it holds no link into it, and begins with the install."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        _, description = archive.read(name).decode().split("\n\n", 1)
    assert description.startswith("# rocketlet\n")
    assert re.findall(r"\]\((?!https://)[^)]*\)", description) == []
    assert "$ pip install rocketlet\n$ rocketlet up\n" in description


def test_source_distribution_holds_the_docs(sources: pathlib.Path, tmp_path: pathlib.Path):
    """The description points to them."""
    run_pip(
        sys.executable, "install", "--quiet", "--target", str(tmp_path / "tools"), *PROJECT["build-system"]["requires"]
    )
    build = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    command = [sys.executable, "-W", "ignore", "-c", build, str(tmp_path)]
    paths = {**os.environ, "PYTHONPATH": str(tmp_path / "tools")}
    subprocess.run(command, cwd=sources, env=paths, check=True, capture_output=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        held = {name.partition("/")[2] for name in opened.getnames()}
    assert {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")} <= held
    assert {
        "README.md",
        "CHANGELOG.md",
        "LICENSE",
        "broker/server.py",
        "common/_codecs.pyx",
        "common/_grpc_codecs.pyx",
        "common/_header_codecs.pyx",
    } <= held


def test_version_is_told_once():
    """What `rocketlet --version` and a running broker tell is the version of the package."""
    assert PROJECT["project"]["version"] == VERSION


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
    assert all(line.startswith("rocketlet: ") for line in errors.splitlines())
    assert process.returncode == 0


def test_plugin_of_the_installed_package_needs_no_pytest_to_import(installed: pathlib.Path):
    """The installed package has no test tools; `rocketlet.testing` can be imported all the same."""
    subprocess.run([installed / "python", "-c", "import rocketlet.testing"], check=True)
