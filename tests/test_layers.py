"""Who may import whom, checked on the source text.

cli   spark   testing   proxy        may import everything below
namesrv   client   broker   export   neighbours; do not know each other
       remoting        store         neighbours as well
               common                imports nothing of ours
"""

import ast
import pathlib
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).parent.parent
LAYERS = (
    ("common",),
    ("remoting", "store"),
    ("namesrv", "client", "broker", "export"),
    ("proxy", "spark", "testing", "cli"),
)
LEVELS = {folder: level for level, folders in enumerate(LAYERS) for folder in folders}
FOLDERS = sorted(folder for folder in LEVELS if (ROOT / folder).is_dir())
OUTSIDE = ("tests", "bench", "examples")
IO_MODULES = frozenset({"asyncio", "mmap", "selectors", "socket", "ssl", "subprocess", "uvloop"})
BARRED_MODULES = {"common": IO_MODULES, "store": IO_MODULES - {"mmap"}}
PURE_SOCKET_NAMES = frozenset({"AF_INET", "AF_INET6", "inet_aton", "inet_ntoa", "inet_ntop", "inet_pton"})


def imports(source: str) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """Yield level, module and names of each import, also of those inside functions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name, ()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.level, node.module or "", tuple(alias.name for alias in node.names)


def faults_inside(folder: str, source: str) -> list[str]:
    """Return what is wrong with the imports of a module in a folder of the package."""
    return [fault for each in imports(source) if (fault := _fault_inside(folder, *each))]


def _fault_inside(folder: str, level: int, module: str, names: tuple[str, ...]) -> str | None:
    head = module.partition(".")[0]
    if level == 0:
        return _fault_of_absolute(folder, head, names)
    if level == 1:
        return f"{folder} is flat, but {module} is imported below it" if "." in module else None
    targets = (head,) if head else names
    return next((fault for target in targets if (fault := _fault_of_relative(folder, level, target))), None)


def _fault_of_absolute(folder: str, head: str, names: tuple[str, ...]) -> str | None:
    if head == "rocketlet" or head in LEVELS:
        return f"{head} is imported absolutely, inside the package imports are relative"
    if head == "socket" and names and PURE_SOCKET_NAMES.issuperset(names):
        return None
    return f"{folder} imports {head}" if head in BARRED_MODULES.get(folder, ()) else None


def _fault_of_relative(folder: str, level: int, target: str) -> str | None:
    if level > 2 or target not in LEVELS:
        return f"the relative import of {target} leaves the package"
    if target != folder and LEVELS[target] >= LEVELS[folder]:
        return f"{folder} imports {target}, which is not below it"
    return None


def faults_outside(source: str) -> list[str]:
    """Return which imports of a module outside the package name a bare folder or are relative."""
    return [fault for level, module, _ in imports(source) if (fault := _fault_outside(level, module.partition(".")[0]))]


def _fault_outside(level: int, head: str) -> str | None:
    if level:
        return f"{head} is imported relatively outside the package"
    return f"{head} is imported from the checkout, not from the package" if head in LEVELS else None


def _sources(folder: str) -> list[pathlib.Path]:
    return sorted(path for path in (ROOT / folder).rglob("*.py") if not {"java", "go"}.intersection(path.parts))


@pytest.mark.parametrize("folder", FOLDERS)
def test_folder_imports_only_lower_layers(folder: str):
    """A module imports its own folder or a lower layer, relatively, and no I/O where its folder has none."""
    faults = [
        f"{path.relative_to(ROOT)}: {fault}"
        for path in _sources(folder)
        for fault in faults_inside(folder, path.read_text())
    ]
    assert faults == []


@pytest.mark.parametrize("folder", OUTSIDE)
def test_outside_imports_the_package(folder: str):
    """Tests, benchmarks and examples import ``rocketlet.…`` and never a bare folder, which would be a second copy."""
    faults = [
        f"{path.relative_to(ROOT)}: {fault}" for path in _sources(folder) for fault in faults_outside(path.read_text())
    ]
    assert faults == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_folder_is_flat(folder: str):
    """Folders of the package hold modules and no folders of modules."""
    assert [str(path.relative_to(ROOT)) for path in (ROOT / folder).glob("*/*.py")] == []


@pytest.mark.parametrize(
    ("folder", "source", "fault"),
    [
        ("store", "from ..common.errors import StoreError", None),
        ("store", "from .segment import Segment", None),
        ("store", "from . import segment", None),
        ("store", "from ..remoting import codes", "store imports remoting, which is not below it"),
        ("store", "def f():\n    from ..broker.server import Broker", "store imports broker, which is not below it"),
        ("client", "from ..broker.server import Broker", "client imports broker, which is not below it"),
        ("client", "from .. import namesrv", "client imports namesrv, which is not below it"),
        ("broker", "import store", "store is imported absolutely, inside the package imports are relative"),
        ("cli", "from rocketlet import store", "rocketlet is imported absolutely, inside the package imports are"),
        ("cli", "from ...tests import support", "the relative import of tests leaves the package"),
        ("cli", "from ..export.report import Report", None),
        ("cli", "from ..spark.source import Source", "cli imports spark, which is not below it"),
        ("store", "import asyncio", "store imports asyncio"),
        ("store", "import mmap", None),
        ("common", "import mmap", "common imports mmap"),
        ("common", "from socket import inet_pton, AF_INET6", None),
        ("common", "from socket import socket", "common imports socket"),
    ],
)
def test_checker_inside_the_package(folder: str, source: str, fault: str | None):
    """The check sees each kind of wrong import inside the package, and passes the right ones."""
    faults = faults_inside(folder, source)
    assert faults == [] if fault is None else len(faults) == 1 and faults[0].startswith(fault)


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("from rocketlet.store.files.files import Files", 0),
        ("import store.files", 1),
        ("from cli import main", 1),
        ("from .support import thing", 1),
    ],
)
def test_checker_outside_the_package(source: str, count: int):
    """The check sees bare folder names and relative imports outside the package."""
    assert len(faults_outside(source)) == count
