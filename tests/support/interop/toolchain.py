"""Builds the drivers of the official clients, once: a build is used again until its sources change.

    driver   sources               result                                     built by
    Java     tests/interop/java    java/target/VERSION/classes and classpath  Maven
    Spring   tests/interop/spring  spring/target/classes and classpath        Maven
    Go       tests/interop/go      go/target/driver                           go build
    h2spec   tests/interop/h2spec  h2spec/target/h2spec                       go build

Those of the clients for RocketMQ 5, which speak gRPC:

    Java     tests/interop/java-grpc    java-grpc/target/classes and classpath  Maven
    Python   tests/interop/python-grpc  python-grpc/target/venv                 pip
    Node.js  tests/interop/node-grpc    node-grpc/target                        npm
    Go       tests/interop/go-grpc      go-grpc/target/driver                   go build
    Rust     tests/interop/rust-grpc    rust-grpc/target/debug/driver           cargo build

Beside each result lies a stamp, the digest of its sources; while it fits, neither tool nor network is needed.
"""

import contextlib
import fcntl
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence

INTEROP = pathlib.Path(__file__).parent.parent.parent / "interop"
JAVA_SOURCES = INTEROP / "java"
GO_SOURCES = INTEROP / "go"
H2SPEC_SOURCES = INTEROP / "h2spec"
H2SPEC = "github.com/summerwind/h2spec/cmd/h2spec"
SPRING_SOURCES = INTEROP / "spring"
JAVA_GRPC_SOURCES = INTEROP / "java-grpc"
NODE_GRPC_SOURCES = INTEROP / "node-grpc"
GO_GRPC_SOURCES = INTEROP / "go-grpc"
PYTHON_GRPC_SOURCES = INTEROP / "python-grpc"
RUST_GRPC_SOURCES = INTEROP / "rust-grpc"
LEAST_CARGO = (1, 84)
SHARED_BY_JAVA_DRIVERS = ("Arguments", "Await", "Command", "CommandLoop", "Named")
JAVA_VERSION = "5.4.0"
OLD_JAVA_VERSION = "4.9.8"
GRPC_JAVA_DRIVER = "rocketlet.interop.GrpcDriver"
TLS_MODE = "tls.server.mode"
VERSIONS_WITHOUT_SERVERS = frozenset({OLD_JAVA_VERSION})

# Drivers live for seconds: the first compiler alone, one collector thread, nothing outside their directory.
QUICK_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
EVERY_JVM = ("-Xmx512m", "-XX:-UsePerfData", "-Drocketmq.client.logUseSlf4j=true")
# A change of a group's members reaches clients through the broker's notice; this is how soon they act on it, and how
# soon they give up the lock of a queue that had messages.
REBALANCE_AT_ONCE = ("-Drocketmq.client.rebalance.minInterval=50", "-Drocketmq.client.unlockDelayTimeMills=50")
# 4.9.8 waits a whole period when it did not get the lock of a queue; 5.4.0 tries again.
REBALANCE_OFTEN = ("-Drocketmq.client.rebalance.waitInterval=2000",)
# Else a client rebalances every 20 s by itself, and would find members that it was never told of.
REBALANCE_WHEN_TOLD = ("-Drocketmq.client.rebalance.waitInterval=3600000",)


class MissingToolError(Exception):
    """A program that a build needs is not installed."""


def build_java(version: str = JAVA_VERSION) -> str:
    """Build the Java driver with the official clients of a version; return its class path."""
    profile = ["-P", "clients"] if version in VERSIONS_WITHOUT_SERVERS else []
    return _build_with_maven(JAVA_SOURCES, JAVA_SOURCES / "target" / version, f"-Drocketmq.version={version}", *profile)


def build_spring() -> str:
    """Build the application on the Spring Boot starter; return its class path."""
    return _build_with_maven(SPRING_SOURCES, SPRING_SOURCES / "target")


def _build_with_maven(
    project: pathlib.Path, target: pathlib.Path, *options: str, more_sources: Sequence[pathlib.Path] = ()
) -> str:
    def build() -> None:
        _run([find_program("mvn"), "-q", "-B", *options, "compile", "dependency:build-classpath"], project)

    find_program("java")
    class_path = target / "classpath"
    if class_path.exists() and not all(map(os.path.exists, class_path.read_text().split(os.pathsep))):
        (target / "stamp").unlink(missing_ok=True)  # Maven's repository has been cleaned since
    _build_once(target, [project / "pom.xml", *sorted((project / "src").rglob("*.*")), *more_sources], build)
    return f"{target / 'classes'}{os.pathsep}{class_path.read_text()}"


def build_go() -> pathlib.Path:
    """Build the Go driver; return the program."""
    return _build_with_go(GO_SOURCES)


def build_grpc_go() -> pathlib.Path:
    """Build the driver of the Go client for RocketMQ 5; return the program."""
    return _build_with_go(GO_GRPC_SOURCES)


def _build_with_go(project: pathlib.Path) -> pathlib.Path:
    program = project / "target" / "driver"
    sources = [*sorted(project.glob("*.go")), project / "go.mod", project / "go.sum"]
    _build_once(program.parent, sources, lambda: _run([_find_go(project), "build", "-o", str(program), "."], project))
    return program


def _find_go(project: pathlib.Path) -> str:
    go = find_program("go")
    version = subprocess.run([go, "version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"go(\d+)\.(\d+)", version)
    needed = re.search(r"^go (\d+)\.(\d+)", (project / "go.mod").read_text(), re.MULTILINE)
    assert needed is not None, "each go.mod names the version that it needs"
    if found is None or tuple(map(int, found.groups())) < tuple(map(int, needed.groups())):
        raise MissingToolError(f"go {needed[1]}.{needed[2]} is not installed")
    return go


def build_h2spec() -> pathlib.Path:
    """Build the conformance test of HTTP/2 servers that ``go.mod`` pins; return the program."""
    program = H2SPEC_SOURCES / "target" / "h2spec"
    sources = [H2SPEC_SOURCES / "go.mod", H2SPEC_SOURCES / "go.sum"]
    _build_once(
        program.parent, sources, lambda: _run([find_program("go"), "build", "-o", str(program), H2SPEC], H2SPEC_SOURCES)
    )
    return program


def build_grpc_java() -> str:
    """Build the driver of the Java client for RocketMQ 5; return its class path."""
    shared = [JAVA_SOURCES / "src/main/java/rocketlet/interop" / f"{name}.java" for name in SHARED_BY_JAVA_DRIVERS]
    return _build_with_maven(JAVA_GRPC_SOURCES, JAVA_GRPC_SOURCES / "target", more_sources=shared)


def build_grpc_python() -> pathlib.Path:
    """Install the Python client for RocketMQ 5 into an environment of its own; return the interpreter."""
    requirements = PYTHON_GRPC_SOURCES / "requirements.txt"
    venv = PYTHON_GRPC_SOURCES / "target" / "venv"

    def build() -> None:
        _run([sys.executable, "-m", "venv", "--clear", str(venv)], PYTHON_GRPC_SOURCES)
        _run([str(venv / "bin" / "pip"), "install", "--quiet", "--requirement", str(requirements)], PYTHON_GRPC_SOURCES)

    _build_once(venv.parent, [requirements], build)
    return venv / "bin" / "python"


def build_grpc_node() -> list[str]:
    """Install the Node.js client for RocketMQ 5 beside a copy of its driver; return the command that runs it."""
    sources = [NODE_GRPC_SOURCES / "package.json", NODE_GRPC_SOURCES / "driver.js"]
    target = NODE_GRPC_SOURCES / "target"
    options = ["--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]

    def build() -> None:
        for source in sources:
            shutil.copy(source, target)
        _run([find_program("npm"), "install", *options], target)

    node = find_program("node")
    _build_once(target, sources, build)
    return [node, str(target / "driver.js")]


def build_grpc_rust() -> pathlib.Path:
    """Build the driver of the Rust client for RocketMQ 5, which takes minutes; return the program."""
    target = RUST_GRPC_SOURCES / "target"
    sources = [RUST_GRPC_SOURCES / "Cargo.toml", *sorted((RUST_GRPC_SOURCES / "src").glob("*.rs"))]

    def build() -> None:
        _run([_find_cargo(), "build", "--quiet", "--target-dir", str(target)], RUST_GRPC_SOURCES)

    _build_once(target, sources, build)
    return target / "debug" / "driver"


def _find_cargo() -> str:
    cargo = find_program("cargo")
    told = subprocess.run([cargo, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"cargo (\d+)\.(\d+)", told)
    if found is None or tuple(map(int, found.groups())) < LEAST_CARGO:
        raise MissingToolError(f"cargo {'.'.join(map(str, LEAST_CARGO))} is not installed")
    return cargo


def java_command(
    directory: pathlib.Path,
    version: str = JAVA_VERSION,
    options: Sequence[str] = QUICK_JVM,
    *,
    rebalances_when_told: bool = False,
    tls_mode: str = "disabled",
) -> list[str]:
    """Return the command that starts a Java driver which writes nothing outside a directory.

    A server that takes TLS makes itself a certificate as it starts, with keys that take seconds to find.
    """
    home = _at_home(directory)
    class_path = build_java(version)
    is_old = version == OLD_JAVA_VERSION
    pace = REBALANCE_WHEN_TOLD if rebalances_when_told else REBALANCE_OFTEN if is_old else ()
    rebalance = (*REBALANCE_AT_ONCE, *pace)
    if is_old:  # its tools look for their logging there and nowhere else
        (directory / "conf").mkdir()
        shutil.copy(JAVA_SOURCES / "src/main/resources/logback.xml", directory / "conf" / "logback_tools.xml")
    tls = f"-D{TLS_MODE}={tls_mode}"
    return ["java", *EVERY_JVM, *options, tls, *rebalance, *home, "-cp", class_path, "rocketlet.interop.Driver"]


def grpc_java_command(directory: pathlib.Path, options: Sequence[str] = QUICK_JVM) -> list[str]:
    """Return the command that starts a driver of the Java client for RocketMQ 5."""
    log = "-Drocketmq.log.level=warn"
    return ["java", *EVERY_JVM, *options, log, *_at_home(directory), "-cp", build_grpc_java(), GRPC_JAVA_DRIVER]


def _at_home(directory: pathlib.Path) -> list[str]:
    return [f"-D{name}={directory}" for name in ("user.home", "java.io.tmpdir", "rocketmq.home.dir")]


def find_program(program: str) -> str:
    """Return where a program is (raises ``MissingToolError``)."""
    found = shutil.which(program)
    if found is None:
        raise MissingToolError(f"{program} is not installed")
    return found


def _build_once(target: pathlib.Path, sources: Sequence[pathlib.Path], build: Callable[[], None]) -> None:
    digest = hashlib.sha256()
    for source in sources:
        if source.is_file():
            digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    stamp = target / "stamp"
    with _lock(target):
        if stamp.exists() and stamp.read_text() == digest.hexdigest():
            return
        stamp.unlink(missing_ok=True)
        build()
        stamp.write_text(digest.hexdigest())


@contextlib.contextmanager
def _lock(target: pathlib.Path) -> Generator[None]:
    """Let one process build at a time."""
    target.mkdir(parents=True, exist_ok=True)
    with (target / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(command: Sequence[str], directory: pathlib.Path) -> None:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout[-8000:]}{done.stderr[-8000:]}")
