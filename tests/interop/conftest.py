"""Official clients in driver processes, and the servers that they talk to.

The server is ``rocketlet up``. With ``ROCKETLET_INTEROP_SERVER=java`` it is the official one: so the tests themselves
are tried, and what passes there and fails with ours is our fault. The Java client is 5.4.0, and also 4.9.8 where a test
says so (``interop.versions``); ``ROCKETLET_INTEROP_JAVA=4.9.8`` runs all tests with that one alone.
"""

import itertools
import os
import pathlib
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest
from interop.clients import Admin
from interop.driver import Driver
from interop.grpc_clients import GrpcDriver
from interop.grpc_drivers import start_grpc_driver
from interop.grpc_servers import GrpcServer, ProxyServer, RocketletGrpcServer
from interop.secured import ASKS_WHETHER, ASKS_WHO
from interop.servers import JavaServer, RocketletServer, Server
from interop.toolchain import TLS_MODE, build_go
from interop.versions import DEFAULT_JAVA, JavaDriver, skipped_without

HERE = pathlib.Path(__file__).parent
NewTopic = Callable[..., str]
StartServer = Callable[..., Server]
ServerKind = type[RocketletServer] | type[JavaServer]
_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let building the drivers, which the first test may do, take longer than a test.

    The official proxy finds keys for two certificates each time it starts: that alone takes 15 s on a machine that has
    twice as much to do as it can.
    """
    limit_s = 300 if os.environ.get("ROCKETLET_INTEROP_SERVER") == "java" else 120
    for item in items:
        if item.nodeid.startswith("tests/interop/"):
            item.add_marker(pytest.mark.timeout(limit_s, func_only=True))


def _start_java(version: str, *, rebalances_when_told: bool = False) -> JavaDriver:
    with skipped_without("the official Java client"):
        return JavaDriver(version, rebalances_when_told=rebalances_when_told)


def _start_go() -> Driver:
    with skipped_without("the official Go client"):
        return Driver("go", lambda _: [str(build_go())])


def _start_python() -> Driver:
    return Driver("python", lambda _: [sys.executable, str(HERE / "python" / "driver.py")])


def _start_server(store: pathlib.Path, replaced: Server | None = None, **settings: str) -> Server:
    if os.environ.get("ROCKETLET_INTEROP_SERVER") == "java":
        return _start_java_server(store, replaced, **settings)
    return RocketletServer(store, settings, replaced)


def _start_grpc_server(store: pathlib.Path, replaced: GrpcServer | None = None, **settings: str) -> GrpcServer:
    if os.environ.get("ROCKETLET_INTEROP_SERVER") == "java":
        with skipped_without("the official proxy"):
            return ProxyServer(store, settings, replaced)
    return RocketletGrpcServer(store, settings, replaced)


def _start_java_server(store: pathlib.Path, replaced: Server | None = None, **settings: str) -> Server:
    with skipped_without("the official broker"):
        return JavaServer(store, settings, replaced)


@pytest.fixture(scope="session")
def java_of() -> Iterator[Callable[[str], JavaDriver]]:
    """Return a call that gives the driver with a version of the Java client; it runs from its first use to the end."""
    with ExitStack() as started:

        @cache
        def start(version: str) -> JavaDriver:
            return started.enter_context(_start_java(version))

        yield start


@pytest.fixture(scope="session")
def java(java_of: Callable[[str], JavaDriver], request: pytest.FixtureRequest) -> JavaDriver:
    """Return a process with the official Java client: 5.4.0, or the one that the test is run with."""
    return java_of(getattr(request, "param", DEFAULT_JAVA))


@pytest.fixture(scope="session")
def go() -> Iterator[Driver]:
    """Return a process with the official Go client."""
    with _start_go() as driver:
        yield driver


@pytest.fixture
def drivers(java: Driver, request: pytest.FixtureRequest) -> Callable[[str], Driver]:
    """Return a call that gives the driver of a client by its name."""
    return lambda name: java if name == "java" else request.getfixturevalue(name)


@pytest.fixture
def driver(client: str, drivers: Callable[[str], Driver]) -> Driver:
    """Return the driver of the client that the test runs with."""
    return drivers(client)


@pytest.fixture
def another_java(java: JavaDriver) -> Iterator[Callable[[], Driver]]:
    """Return a call that starts one more process with the same Java client, to be killed."""
    with ExitStack() as started:
        yield lambda: started.enter_context(_start_java(java.version))


@pytest.fixture
def told_java(java: JavaDriver) -> Iterator[JavaDriver]:
    """Return a process with the same Java client whose consumers rebalance at their start and when they are told."""
    with _start_java(java.version, rebalances_when_told=True) as started:
        yield started


@pytest.fixture
def another_go() -> Iterator[Callable[[], Driver]]:
    """Return a call that starts a process with the Go client, to be killed."""
    with ExitStack() as started:
        yield lambda: started.enter_context(_start_go())


@pytest.fixture
def another_python() -> Iterator[Callable[[], Driver]]:
    """Return a call that starts a process with our client, to be killed."""
    with ExitStack() as started:
        yield lambda: started.enter_context(_start_python())


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Return the server that most tests share; each test has topics of its own."""
    with _start_server(tmp_path_factory.mktemp("shared") / "store") as started:
        yield started


@pytest.fixture(scope="module")
def rocketlet_up() -> Iterator[StartServer]:
    """Return a call that starts ``rocketlet up`` on a store directory, with Java's settings.

    With ``replaced=`` a server that has ended, it takes the same ports.
    """
    with ExitStack() as started:

        def start(store: pathlib.Path, replaced: Server | None = None, **settings: str) -> Server:
            return started.enter_context(_start_server(store, replaced, **settings))

        yield start


@pytest.fixture(scope="module")
def fresh_server(rocketlet_up: StartServer, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Server]:
    """Return a call that starts ``rocketlet up`` on a directory of its own, with Java's settings."""

    def start(**settings: str) -> Server:
        return rocketlet_up(tmp_path_factory.mktemp("fresh") / "store", **settings)

    return start


@pytest.fixture(scope="module")
def java_broker() -> Iterator[StartServer]:
    """Return a call that starts the official name server and broker on a store directory."""
    with ExitStack() as started:

        def start(store: pathlib.Path, replaced: Server | None = None, **settings: str) -> Server:
            return started.enter_context(_start_java_server(store, replaced, **settings))

        yield start


@pytest.fixture(scope="session")
def both_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[ServerKind], Server]]:
    """Return a call that gives our servers or the official ones; they run from their first use to the end."""
    with ExitStack() as started:

        @cache
        def start(kind: ServerKind) -> Server:
            settings = {"transactionCheckInterval": "1000", "transactionTimeOut": "500"}
            if kind is JavaServer:
                settings[TLS_MODE] = "permissive"
            with skipped_without("the official broker"):
                return started.enter_context(kind(tmp_path_factory.mktemp("either") / "store", settings))

        yield start


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Return an official broker that asks who its clients are and what they may do, takes TLS, and keeps traces."""
    settings = ASKS_WHO | ASKS_WHETHER | {"traceTopicEnable": "true"}
    with ExitStack() as started:
        yield started.enter_context(_start_java_server(tmp_path_factory.mktemp("secured") / "store", None, **settings))


@pytest.fixture(scope="session", params=[RocketletServer, JavaServer], ids=["rocketlet", "java"])
def either(request: pytest.FixtureRequest, both_servers: Callable[[ServerKind], Server]) -> Server:
    """Return our servers, then the official ones; open transactions are checked once a second."""
    return both_servers(request.param)


@pytest.fixture(scope="session")
def admin(java_of: Callable[[str], JavaDriver], server: Server) -> Iterator[Admin]:
    """Return an administration client of the shared server."""
    with Admin(java_of(DEFAULT_JAVA), namesrv=server.namesrv) as client:
        yield client


@pytest.fixture
def new_name(request: pytest.FixtureRequest) -> Callable[[], str]:
    """Return a call that gives names for topics and groups that no other test uses."""
    return lambda: f"{request.node.originalname}-{next(_numbers)}".replace("_", "-")


@pytest.fixture
def new_topic(admin: Admin, server: Server, new_name: Callable[[], str]) -> NewTopic:
    """Return a call that creates a topic on the shared server, with 4 queues unless told otherwise."""

    def create(queues: int = 4) -> str:
        topic = new_name()
        admin.create_topic(server.broker, topic, queues)
        return topic

    return create


@pytest.fixture(scope="session")
def grpc_driver_of() -> Iterator[Callable[[str], GrpcDriver]]:
    """Return a call that gives the process with an official client that speaks gRPC, from its first use to the end."""
    with ExitStack() as started:

        @cache
        def start(name: str) -> GrpcDriver:
            return started.enter_context(start_grpc_driver(name))

        yield start


@pytest.fixture(scope="session")
def grpc_driver(grpc_driver_of: Callable[[str], GrpcDriver], request: pytest.FixtureRequest) -> GrpcDriver:
    """Return the process of the official client that the test runs with."""
    return grpc_driver_of(request.param)


@pytest.fixture(scope="session")
def grpc_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GrpcServer]:
    """Return the server that most tests of gRPC clients share; open transactions are asked about after a second."""
    settings = {"transactionTimeOut": "1000", "transactionCheckInterval": "1000"}
    with _start_grpc_server(tmp_path_factory.mktemp("grpc") / "store", None, **settings) as started:
        yield started


@pytest.fixture(scope="session")
def grpc_admin(java_of: Callable[[str], JavaDriver], grpc_server: GrpcServer) -> Iterator[Admin]:
    """Return an administration client of the server that tests of gRPC clients share."""
    with Admin(java_of(DEFAULT_JAVA), namesrv=grpc_server.namesrv) as client:
        yield client


@pytest.fixture
def new_grpc_topic(grpc_admin: Admin, grpc_server: GrpcServer, new_name: Callable[[], str]) -> NewTopic:
    """Return a call that creates a topic for a type of messages on the server that gRPC clients share."""

    def create(kind: str = "NORMAL", queues: int = 4) -> str:
        topic = new_name()
        grpc_admin.create_topic(grpc_server.broker, topic, queues, attributes={"+message.type": kind})
        return topic

    return create


@pytest.fixture
def new_grpc_group(grpc_admin: Admin, grpc_server: GrpcServer, new_name: Callable[[], str]) -> Callable[..., str]:
    """Return a call that creates a group with settings on the server that gRPC clients share."""

    def create(**settings: object) -> str:
        group = new_name()
        about = {"groupName": group, **settings}
        grpc_admin.call("createAndUpdateSubscriptionGroupConfig", grpc_server.broker, about)
        return group

    return create


@pytest.fixture
def fresh_grpc_server(tmp_path: pathlib.Path) -> Iterator[Callable[..., GrpcServer]]:
    """Return a call that starts a server for gRPC clients on a store of the test, or in the place of one that ended."""
    with ExitStack() as started:

        def start(replaced: GrpcServer | None = None, **settings: str) -> GrpcServer:
            return started.enter_context(_start_grpc_server(tmp_path / "store", replaced, **settings))

        yield start
