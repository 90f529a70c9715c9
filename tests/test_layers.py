"""Who may import whom, checked on the source text: between the parts, between the folders of a part, between files.

cli   testing   console metrics spark proxy  may import everything below
namesrv   client   broker   export   neighbours; do not know each other
       remoting        store         neighbours as well
               common                imports nothing of ours

Inside a part the folders have an order, too (``ORDER``, the lowest first); ``.`` stands for the modules beside them.
"""

import ast
import pathlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pytest

ROOT = pathlib.Path(__file__).parent.parent
LAYERS = (
    ("common",),
    ("remoting", "store"),
    ("namesrv", "client", "broker", "export"),
    ("console", "metrics", "proxy", "spark"),
    ("testing",),
    ("cli",),
)
LEVELS = {folder: level for level, folders in enumerate(LAYERS) for folder in folders}
PARTS = sorted(folder for folder in LEVELS if (ROOT / folder).is_dir())
ORDER = {
    "common": (".", "subscriptions"),
    "remoting": ("codec", "headers", "bodies", "transport", "tls"),
    "store": ("files", "commitlog", "consumequeue", "index", "recovery", "timer", ".", "audit"),
    "broker": (
        "settings",
        "topic",
        "outcomes",
        "group",
        "delay",
        "transaction",
        "send",
        "pull",
        "pop",
        "replication",
        "admin",
        "security",
        ".",
    ),
    "client": ("session", "group", "pop", "producer", "tracing", "consumer", "admin", "."),
    "export": ("plan", "columns", "report", "pushdown", "write"),
    "proxy": ("http2", "rpc", "messages", "services", "."),
    "cli": ("verbs", "traffic", "starting", "control_port", "."),
    "testing": ("views", "faults", "."),
    "spark": ("options", "cluster", "live", "stream", "hybrid", "sink", "."),
}
WIRE_MODULES = frozenset(
    {
        *("handlers", "query_handlers", "report_handlers", "change_handlers", "setting_handlers"),
        *("absent_handlers", "client_handlers", "group_handlers", "offset_handlers"),
        *("registration", "components", "admin_components", "other_brokers", "parts", "ports", "role", "server"),
        *("ha_client", "ha_server", "master_requests", "peer_handlers", "slave_handlers", "slave_link"),
        *("table_handlers", "pop_answers", "assignment_handlers", "topic_routes", "needs", "signatures", "guard"),
    }
)
"""The modules of the broker that may import ``remoting``, where every module may import ``NO_WIRE`` of it."""
NO_WIRE = (("remoting", "transport", "event_loop"), ("remoting", "tls", "tls_settings"))
MOST_MODULES = 20
LEAST_MODULES = 3
MOST_LINES = 600
OUTSIDE = ("tests", "bench", "examples")
IO_MODULES = frozenset({"asyncio", "mmap", "selectors", "socket", "ssl", "subprocess", "uvloop"})
BARRED_MODULES = {"common": IO_MODULES, "store": IO_MODULES - {"mmap"}}
PURE_SOCKET_NAMES = frozenset({"AF_INET", "AF_INET6", "inet_aton", "inet_ntoa", "inet_ntop", "inet_pton"})


class Import(NamedTuple):
    """One import: how many dots, the module, its names, and whether it is for type checkers only."""

    level: int
    module: str
    names: tuple[str, ...]
    is_for_types: bool = False


def imports(source: str) -> Iterator[Import]:
    """Yield each import, also of those inside functions."""
    tree = ast.parse(source)
    guarded = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (Import(0, alias.name, ()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names = tuple(alias.name for alias in node.names)
            yield Import(node.level, node.module or "", names, id(node) in guarded)


def targets(module: tuple[str, ...], one: Import) -> list[tuple[str, ...]]:
    """Return what a relative import in a module of the package names, from the root on; () for the root itself."""
    base = module[: len(module) - one.level]
    named = (*base, *one.module.split(".")) if one.module else base
    return [named] if one.module else [(*named, name) for name in one.names]


def faults_inside(module: tuple[str, ...], source: str) -> list[str]:
    """Return what is wrong with the imports of a module between the parts; it is named from the root on."""
    return [fault for one in imports(source) for fault in _faults_of(module, one)]


def _faults_of(module: tuple[str, ...], one: Import) -> list[str]:
    part = module[0]
    if one.level == 0:
        fault = _fault_of_absolute(part, one.module.partition(".")[0], one.names)
        return [fault] if fault else []
    if one.level > len(module):
        return [f"a relative import of {one.module} leaves the package"]
    return [fault for target in targets(module, one) if (fault := _fault_of_relative(part, target[0]))]


def _fault_of_absolute(part: str, head: str, names: tuple[str, ...]) -> str | None:
    if head == "rocketlet" or head in LEVELS:
        return f"{head} is imported absolutely, inside the package imports are relative"
    if head == "socket" and names and PURE_SOCKET_NAMES.issuperset(names):
        return None
    return f"{part} imports {head}" if head in BARRED_MODULES.get(part, ()) else None


def _fault_of_relative(part: str, target: str) -> str | None:
    if target not in LEVELS:
        return f"a relative import of {target} leaves the package"
    if target != part and LEVELS[target] >= LEVELS[part]:
        return f"{part} imports {target}, which is not below it"
    return None


def faults_outside(source: str) -> list[str]:
    """Return which imports of a module outside the package name a bare folder or are relative."""
    faults: list[str] = []
    for one in imports(source):
        head = one.module.partition(".")[0]
        if one.level:
            faults.append(f"{head} is imported relatively outside the package")
        elif head in LEVELS:
            faults.append(f"{head} is imported from the checkout, not from the package")
    return faults


def modules_of(part: str) -> dict[tuple[str, ...], str]:
    """Return the sources of a part's modules by their names from the root on."""
    paths = [path for path in (ROOT / part).rglob("*.py") if "toplevel" not in path.parts]
    named = {path.relative_to(ROOT).with_suffix("").parts: path.read_text() for path in sorted(paths)}
    return {(name[:-1] if name[-1] == "__init__" else name): source for name, source in named.items()}


def graph_of(part: str) -> dict[tuple[str, ...], set[tuple[str, ...]]]:
    """Return which modules of a part each of its modules imports."""
    sources = modules_of(part)
    graph: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
    for name, source in sources.items():
        is_package = (ROOT.joinpath(*name) / "__init__.py").exists()
        inside = (*name, "__init__") if is_package else name
        named = [
            target
            for one in imports(source)
            if one.level and not one.is_for_types
            for target in targets(inside, one)
            if target and target[0] == part
        ]
        graph[name] = {target for target in named if target in sources and target != name}
    return graph


def find_circle(graph: Mapping[tuple[str, ...], set[tuple[str, ...]]]) -> list[str]:
    """Return the names of a circle, nothing when there is none."""
    done: set[tuple[str, ...]] = set()

    def visit(name: tuple[str, ...], path: list[tuple[str, ...]]) -> list[str]:
        if name in path:
            return [".".join(one) for one in [*path[path.index(name) :], name]]
        if name in done:
            return []
        for target in sorted(graph.get(name, ())):
            if circle := visit(target, [*path, name]):
                return circle
        done.add(name)
        return []

    for name in sorted(graph):
        if circle := visit(name, []):
            return circle
    return []


def folder_of(name: tuple[str, ...]) -> str:
    """Return the folder of a part's module, a dot for those beside the folders."""
    return name[1] if len(name) > 2 else "."


@pytest.mark.parametrize("part", PARTS)
def test_part_imports_only_lower_layers(part: str) -> None:
    """A module imports its own part or a lower layer, relatively, and no I/O where its part has none."""
    faults = [
        f"{'.'.join(name)}: {fault}"
        for name, source in modules_of(part).items()
        for fault in faults_inside((*name, "__init__") if len(name) == 1 or is_folder(name) else name, source)
    ]
    assert faults == []


def is_folder(name: tuple[str, ...]) -> bool:
    """Tell whether a name is that of a folder."""
    return ROOT.joinpath(*name).is_dir()


@pytest.mark.parametrize("folder", OUTSIDE)
def test_outside_imports_the_package(folder: str) -> None:
    """Tests, benchmarks and examples import ``rocketlet.…`` and never a bare folder, which would be a second copy."""
    paths = [path for path in (ROOT / folder).rglob("*.py") if not {"java", "go", "target"}.intersection(path.parts)]
    faults = [f"{path.relative_to(ROOT)}: {fault}" for path in paths for fault in faults_outside(path.read_text())]
    assert faults == []


@pytest.mark.parametrize("part", sorted(ORDER))
def test_folders_of_a_part_keep_their_order(part: str) -> None:
    """A folder imports its own modules and those of folders before it in ``ORDER``."""
    order = {folder: level for level, folder in enumerate(ORDER[part])}
    faults = [
        f"{'.'.join(name)} imports {'.'.join(target)}"
        for name, imported in graph_of(part).items()
        for target in sorted(imported)
        if len(name) > 1 and len(target) > 1
        if not (is_folder(name) or is_folder(target))
        if order[folder_of(target)] > order[folder_of(name)]
    ]
    assert faults == []
    assert {folder.name for folder in (ROOT / part).iterdir() if (folder / "__init__.py").exists()} == {*order} - {"."}


def wire_imports(name: tuple[str, ...], source: str) -> list[str]:
    """Return which modules of the wire a module imports, but the tools of its event loop and the settings of TLS."""
    named = [target for one in imports(source) if one.level for target in targets(name, one)]
    return sorted({".".join(target) for target in named if target[0] == "remoting" and target not in NO_WIRE})


def test_operations_of_the_broker_know_no_wire() -> None:
    """Adapters, the link to name servers and who puts a broker together import ``remoting``; operations do not."""
    operations = {name: source for name, source in modules_of("broker").items() if name[-1] not in WIRE_MODULES}
    found = {".".join(name): wire_imports(name, source) for name, source in operations.items()}
    assert {name: modules for name, modules in found.items() if modules} == {}


@pytest.mark.parametrize("part", PARTS)
def test_modules_of_a_part_have_no_circle(part: str) -> None:
    """No module leads back to itself by the imports of its part."""
    assert find_circle(graph_of(part)) == []


def test_folders_have_a_readable_size() -> None:
    """A folder holds 3 to 20 modules beside its ``__init__.py``, and no module is endless."""
    sizes = {
        str(init.parent.relative_to(ROOT)): sum(path.name != "__init__.py" for path in init.parent.glob("*.py"))
        for part in PARTS
        for init in (ROOT / part).rglob("__init__.py")
    }
    folders = {name for name in sizes if "/" in name} | {part for part in PARTS if part not in ORDER}
    assert {name: size for name, size in sizes.items() if size > MOST_MODULES} == {}
    assert {name: size for name, size in sizes.items() if name in folders and size < LEAST_MODULES} == {}
    lengths = {str(path): len(path.read_text().splitlines()) for part in PARTS for path in (ROOT / part).rglob("*.py")}
    assert {name: length for name, length in lengths.items() if length > MOST_LINES} == {}


@pytest.mark.parametrize(
    ("module", "source", "fault"),
    [
        ("store.files.segments", "from ...common.errors import StoreError", None),
        ("store.message_store", "from .files.segments import Segment", None),
        ("store.files.segments", "from . import maps", None),
        ("store.files.segments", "from ..index import Index", None),
        ("store.message_store", "from ..remoting import codec", "store imports remoting, which is not below it"),
        ("store.x", "def f():\n    from ..broker.server import Broker", "store imports broker, which is not below it"),
        ("client.session.session", "from ...broker.server import Broker", "client imports broker, which is not below"),
        ("client.x", "from .. import namesrv", "client imports namesrv, which is not below it"),
        ("broker.x", "import store", "store is imported absolutely, inside the package imports are relative"),
        ("cli.x", "from rocketlet import store", "rocketlet is imported absolutely, inside the package imports are"),
        ("cli.x", "from ..tests import support", "a relative import of tests leaves the package"),
        ("cli.x", "from ....tests import support", "a relative import of tests leaves the package"),
        ("cli.x", "from ..export.report.report import Report", None),
        ("testing.x", "from ..cli.main import main", "testing imports cli, which is not below it"),
        ("store.x", "import asyncio", "store imports asyncio"),
        ("store.x", "import mmap", None),
        ("common.x", "import mmap", "common imports mmap"),
        ("common.x", "from socket import inet_pton, AF_INET6", None),
        ("common.x", "from socket import socket", "common imports socket"),
    ],
)
def test_checker_inside_the_package(module: str, source: str, fault: str | None) -> None:
    """The check sees each kind of wrong import inside the package, and passes the right ones."""
    faults = faults_inside(tuple(module.split(".")), source)
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
def test_checker_outside_the_package(source: str, count: int) -> None:
    """The check sees bare folder names and relative imports outside the package."""
    assert len(faults_outside(source)) == count


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from ...remoting.codec.request_codes import RequestCode", ["remoting.codec.request_codes"]),
        ("from ...remoting import codec", ["remoting"]),
        ("from ...remoting.transport.event_loop import TaskScope", []),
        ("from ...common.codes import ResponseCode", []),
    ],
)
def test_checker_finds_the_wire(source: str, found: list[str]) -> None:
    """The check sees what an operation imports of the wire; the tools of the event loop are none."""
    assert wire_imports(("broker", "send", "x"), source) == found


def test_checker_finds_circles() -> None:
    """A circle is named in its order; what merely meets again is none."""
    a, b, c = ("p", "a"), ("p", "b"), ("p", "c")
    assert find_circle({a: {b}, b: {c}, c: {a}}) == ["p.a", "p.b", "p.c", "p.a"]
    assert find_circle({a: {b, c}, b: {c}, c: set()}) == []
